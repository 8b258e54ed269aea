#include "runtime/job_queue.h"

#include <utility>

#include "runtime/thread_nice.h"

namespace troupe {

JobQueue::JobQueue(std::size_t jobs_max, int nice)
    : jobs_max_(jobs_max), nice_(nice), thread_([this] { run(); }) {}

JobQueue::~JobQueue() { end(); }

Status JobQueue::add(std::function<void()> job) {
  {
    std::lock_guard lock(mutex_);
    if (ended_) return cancelled("The queue of jobs has ended.");
    if (waiting_.size() >= jobs_max_) return resource_exhausted("Too many jobs are waiting.");
    waiting_.push_back(std::move(job));
  }
  changed_.notify_one();
  return {};
}

void JobQueue::end() {
  std::deque<std::function<void()>> dropped;
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
    dropped.swap(waiting_);
  }
  changed_.notify_one();
  dropped.clear();  // what they hold is free even if the running job takes long
  if (thread_.joinable()) thread_.join();
}

void JobQueue::run() {
  set_thread_nice(nice_);
  while (true) {
    std::function<void()> job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ended_ || !waiting_.empty(); });
      if (ended_) return;
      job = std::move(waiting_.front());
      waiting_.pop_front();
    }
    job();
  }
}

}  // namespace troupe
