#include "transport/nccl/watchdog.h"

#include <algorithm>
#include <utility>

#include "runtime/log.h"

namespace troupe::nccl {

Watchdog::Watchdog(Options options)
    : options_(std::move(options)), looks_([this] { look(); }), aborts_([this] { abort(); }) {}

Watchdog::~Watchdog() {
  std::vector<std::shared_ptr<Communicator>> alive;
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    alive = alive_;
  }
  for (const auto& communicator : alive) communicator->close();
  wake();
  looks_.join();
  aborts_.join();
}

std::shared_ptr<Communicator> Watchdog::start(Communicator::Options options) {
  std::shared_ptr<Communicator> made(
      new Communicator(std::move(options), options_.deadlines, [this] { wake(); }));
  std::lock_guard lock(mutex_);
  alive_.push_back(made);
  made->start();
  return made;
}

void Watchdog::wake() {
  std::lock_guard lock(mutex_);
  woken_ = true;
  changed_.notify_all();
}

/// When to look again.
TimePoint Watchdog::look_at_all(TimePoint now) {
  std::vector<std::shared_ptr<Communicator>> alive;
  {
    std::lock_guard lock(mutex_);
    alive = alive_;
  }
  TimePoint next = TimePoint::max();
  std::vector<std::shared_ptr<Communicator>> broken;
  for (const auto& communicator : alive) {
    next = std::min(next, communicator->look(now));
    if (communicator->take_for_abort(now)) broken.push_back(communicator);
  }
  std::lock_guard lock(mutex_);
  for (auto& communicator : broken) {
    std::erase(alive_, communicator);
    to_abort_.push_back(std::move(communicator));
  }
  changed_.notify_all();
  return next;
}

void Watchdog::look() {
  for (;;) {
    TimePoint next = look_at_all(now());
    std::unique_lock lock(mutex_);
    if (aborting_since_ != TimePoint::max() && !stuck_) {
      const TimePoint end = aborting_since_ + options_.deadlines.abort;
      if (now() >= end) {
        stuck_ = true;
        lock.unlock();
        options_.on_stuck("NCCL does not come back from being aborted.");
        continue;
      }
      next = std::min(next, end);
    }
    if (ending_ && alive_.empty() && to_abort_.empty() && aborting_since_ == TimePoint::max())
      return;
    const auto is_woken = [&] { return std::exchange(woken_, false); };
    if (next == TimePoint::max())
      changed_.wait(lock, is_woken);
    else
      changed_.wait_until(lock, next, is_woken);
  }
}

void Watchdog::abort() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !to_abort_.empty() || (ending_ && alive_.empty()); });
    if (to_abort_.empty()) break;
    auto group = std::exchange(to_abort_, {});
    aborting_since_ = now();
    woken_ = true;  // a deadline has begun
    changed_.notify_all();
    lock.unlock();
    abort_group(group);
    group.clear();
    lock.lock();
    aborting_since_ = TimePoint::max();
    woken_ = true;
    changed_.notify_all();
  }
  woken_ = true;
  changed_.notify_all();
}

void Watchdog::abort_group(std::vector<std::shared_ptr<Communicator>>& group) const {
  std::vector<std::pair<Comm, const Library*>> comms;
  for (const auto& communicator : group)
    if (const Comm comm = communicator->comm())
      comms.emplace_back(comm, communicator->options_.library.get());
  if (!comms.empty()) {
    // One process loads one library, so that all are in its group.
    const Library& nccl = *comms.front().second;
    Status good = nccl.check(nccl.group_start(), "beginning an abort");
    for (const auto& [comm, library] : comms)
      if (const Status done = nccl.check(nccl.comm_abort(comm), "an abort"); !done.ok())
        good = done;
    if (const Status done = nccl.check(nccl.group_end(), "an abort"); !done.ok()) good = done;
    if (!good.ok()) logger().warn("{}", good.error().message);
  }
  for (const auto& communicator : group) communicator->end();
}

}  // namespace troupe::nccl
