#pragma once

#include <mutex>

#include "transport/message.h"

namespace troupe {

/// The newest report of a replica, for its node's agent. Any thread.
class ReportSlot {
 public:
  ReplicaReport newest() const {
    std::lock_guard lock(mutex_);
    return newest_;
  }
  void set(const ReplicaReport& report) {
    std::lock_guard lock(mutex_);
    newest_ = report;
  }

 private:
  mutable std::mutex mutex_;
  ReplicaReport newest_;  // guarded by mutex_
};

}  // namespace troupe
