#include "actors/worker/loader.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "runtime/limits.h"

namespace troupe {

Loader::Loader() : thread_([this] { loop(); }) {}

Loader::~Loader() {
  {
    std::lock_guard lock(state_->mutex);
    stop_ = true;
    next_.reset();
    if (running_) running_->cancelled = true;
  }
  state_->changed.notify_all();
  thread_.join();
  for (const auto& task : hung_) task->thread.detach();
}

void Loader::run(Job job, std::function<void()> refused) {
  auto task = std::make_shared<Task>();
  task->job = std::move(job);
  task->refused = std::move(refused);
  {
    std::lock_guard lock(state_->mutex);
    if (running_) running_->cancelled = true;
    next_.swap(task);
  }
  state_->changed.notify_all();  // a job that was replaced is destroyed without the lock
}

void Loader::cancel() {
  TaskPtr dropped;  // destroyed without the lock
  std::lock_guard lock(state_->mutex);
  if (running_) running_->cancelled = true;
  dropped.swap(next_);
}

/// A job's thread.
void Loader::work(const std::shared_ptr<State>& state, const TaskPtr& task) {
  task->job(task->cancelled);
  task->job = nullptr;  // what it holds goes without the lock
  std::lock_guard lock(state->mutex);
  task->ended = true;
  state->changed.notify_all();
}

void Loader::loop() {
  std::unique_lock lock(state_->mutex);
  while (true) {
    state_->changed.wait(lock, [&] { return stop_ || next_; });
    finish_running(lock);
    if (stop_) return;
    if (const TaskPtr task = std::exchange(next_, nullptr)) begin(lock, task);
  }
}

/// Whether it has ended, or does so soon enough.
bool Loader::ends(std::unique_lock<std::mutex>& lock, const TaskPtr& task) {
  const auto ended = [&] { return task->ended; };
  if (task->refused) return state_->changed.wait_for(lock, limits::kReadPatience, ended);
  state_->changed.wait(lock, ended);
  return true;
}

void Loader::finish_running(std::unique_lock<std::mutex>& lock) {
  if (const TaskPtr task = running_) {
    task->cancelled = true;
    if (ends(lock, task))
      task->thread.join();
    else
      hung_.push_back(task);
    running_.reset();
  }
  std::erase_if(hung_, [](const TaskPtr& task) {
    if (task->ended) task->thread.join();
    return task->ended;
  });
}

void Loader::begin(std::unique_lock<std::mutex>& lock, const TaskPtr& task) {
  bool begun = !task->refused || hung_.size() < limits::kHungReadsMax;
  try {
    if (begun) task->thread = std::thread([state = state_, task] { work(state, task); });
  } catch (const std::system_error&) {  // no thread is to be had
    begun = false;
  }
  if (begun) {
    running_ = task;
    return;
  }
  lock.unlock();
  if (task->refused)
    task->refused();
  else
    task->job(task->cancelled);
  lock.lock();
}

}  // namespace troupe
