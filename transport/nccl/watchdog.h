#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "transport/nccl/communicator.h"

namespace troupe::nccl {

/// Makes and owns the communicators of a process, and sees to it that each comes to an end: holds
/// them to their deadlines, and aborts those that are broken, all of a moment in one group, because
/// a communicator's abort may wait for another's. One thread looks, the other aborts: if an abort
/// does not end either, only the end of the process helps, and its owner is told.
class Watchdog {
 public:
  struct Options {
    Deadlines deadlines = {};
    /// NCCL does not come back, for this reason: the process has to end. Once; must not block.
    std::function<void(const std::string&)> on_stuck;
  };
  explicit Watchdog(Options options);
  /// Breaks up all communicators, and waits until they are aborted.
  ~Watchdog();

  /// A new communicator, whose forming has begun.
  std::shared_ptr<Communicator> start(Communicator::Options options);

 private:
  void wake();
  void look();
  void abort();
  void abort_group(std::vector<std::shared_ptr<Communicator>>& group) const;
  TimePoint look_at_all(TimePoint now);

  const Options options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // guarded by mutex_
  std::vector<std::shared_ptr<Communicator>> alive_;
  std::vector<std::shared_ptr<Communicator>> to_abort_;
  TimePoint aborting_since_ = TimePoint::max();
  bool stuck_ = false;
  bool woken_ = false;
  bool ending_ = false;
  std::thread looks_, aborts_;
};

}  // namespace troupe::nccl
