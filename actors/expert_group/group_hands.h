#pragma once

#include <memory>

#include "actors/base/host.h"
#include "actors/device/device.h"
#include "actors/expert_group/expert_group.h"

namespace troupe {

/// Carries an ExpertGroup's questions to its passes: they gather in a queue, which the next job in
/// the device's queue takes as a whole when it begins. The pass is freed in the device's queue
/// after the last job; the group's life ends then.
class GroupHands {
 public:
  GroupHands(Host& host, const Ref<ExpertGroupInbox>& self, Device& device,
             std::unique_ptr<ExpertPass> pass, const Life& life);
  GroupHands(GroupHands&&) = default;
  ~GroupHands();

  void carry_out(AskPass&& ask, const ExpertGroup& group);
  void carry_out(SayAtWork&& say, const ExpertGroup& group);

 private:
  struct Seat;  // what jobs share: post, self, pass, life, and what waits
  Host* host_;
  Device* device_;
  std::shared_ptr<Seat> seat_;
};

}  // namespace troupe
