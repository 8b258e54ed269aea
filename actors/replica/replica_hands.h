#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "actors/replica/replica.h"

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

class ReplicaHands {
 public:
  explicit ReplicaHands(std::shared_ptr<ReportSlot> slot) : slot_(std::move(slot)) {}
  void carry_out(ReportChanged&& changed, const Replica&) { slot_->set(changed.report); }

 private:
  std::shared_ptr<ReportSlot> slot_;
};

}  // namespace troupe
