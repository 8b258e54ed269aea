#include "actors/worker/loader.h"

namespace troupe {

Loader::Loader() : thread_([this] { loop(); }) {}

Loader::~Loader() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    next_.reset();
    if (running_) running_->cancelled = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Loader::run(Job job) {
  auto task = std::make_shared<Task>();
  task->job = std::move(job);
  {
    std::lock_guard lock(mutex_);
    if (running_) running_->cancelled = true;
    next_.swap(task);
  }
  changed_.notify_all();  // a job that was replaced is destroyed without the lock
}

void Loader::cancel() {
  std::shared_ptr<Task> dropped;  // destroyed without the lock
  std::lock_guard lock(mutex_);
  if (running_) running_->cancelled = true;
  dropped.swap(next_);
}

void Loader::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || next_; });
    if (stop_) return;
    running_ = std::move(next_);
    auto task = running_;
    lock.unlock();
    task->job(task->cancelled);
    task->job = nullptr;  // what it holds goes without the lock
    lock.lock();
    running_.reset();
  }
}

}  // namespace troupe
