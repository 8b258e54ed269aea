#include "actors/node_agent/loader.h"

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
    next_ = std::move(task);
  }
  changed_.notify_all();
}

void Loader::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || next_; });
    if (stop_) return;
    running_ = std::move(next_);
    const auto task = running_;
    lock.unlock();
    task->job(task->cancelled);
    lock.lock();
    running_.reset();
  }
}

}  // namespace troupe
