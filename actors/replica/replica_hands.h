#pragma once

#include <memory>
#include <utility>

#include "actors/replica/replica.h"
#include "actors/replica/report_slot.h"

namespace troupe {

class ReplicaHands {
 public:
  explicit ReplicaHands(std::shared_ptr<ReportSlot> slot) : slot_(std::move(slot)) {}
  void carry_out(ReportChanged&& changed, const Replica&) { slot_->set(changed.report); }

 private:
  std::shared_ptr<ReportSlot> slot_;
};

}  // namespace troupe
