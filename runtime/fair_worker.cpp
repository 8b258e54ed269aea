#include "runtime/fair_worker.h"

#include <algorithm>

#include "runtime/thread_nice.h"

namespace troupe {

FairWorker::FairWorker(int nice) : nice_(nice), thread_([this] { run(); }) {}

void FairWorker::post(std::uint64_t owner, std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    const auto known = std::ranges::find(turns_, owner, &std::pair<std::uint64_t, Jobs>::first);
    Jobs& jobs = known != turns_.end() ? known->second : turns_.emplace_back(owner, Jobs()).second;
    jobs.push_back(std::move(job));
  }
  changed_.notify_all();
}

void FairWorker::join() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void FairWorker::run() {
  set_thread_nice(nice_);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ended_ || !turns_.empty(); });
    if (turns_.empty()) return;
    auto turn = std::move(turns_.front());
    turns_.pop_front();
    const std::function<void()> job = std::move(turn.second.front());
    turn.second.pop_front();
    if (!turn.second.empty()) turns_.push_back(std::move(turn));
    lock.unlock();
    job();
    lock.lock();
  }
}

}  // namespace troupe
