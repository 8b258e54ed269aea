#include "model/placement/small_devices.h"

#include <algorithm>
#include <limits>

#include "model/placement/compute_room.h"
#include "model/placement/stages.h"

namespace troupe {

SmallDevices small_devices(const PlacementInput& input) {
  constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();
  const bool experts = !expert_layers(input.model).empty();
  const std::uint64_t expert = experts ? input.model.expert_bytes : kNever;
  const std::uint64_t expert_compute =
      input.compute && experts && input.devices.size() > 1
          ? group_bytes(*input.compute, 1, 1, input.model.num_experts)
          : 0;
  std::uint64_t stage_least = kNever, stage_compute = kNever;
  for (const Stage& stage : make_stages(input)) {
    const std::uint64_t need = saturating_add(stage.weight_bytes, stage.least_kv);
    stage_least = std::min(stage_least, need);
    stage_compute = std::min(stage_compute, saturating_add(need, stage.compute_bytes));
  }
  SmallDevices small;
  for (const auto& d : input.devices) {
    const std::uint64_t plannable = plannable_bytes(d.memory_total);
    const bool holds_stage = plannable >= stage_least;
    if (holds_stage && d.memory_total >= stage_compute) continue;
    const bool holds_expert =
        plannable >= expert && d.memory_total >= saturating_add(expert, expert_compute);
    if (!holds_expert)
      small.useless.push_back(d.device);
    else if (holds_stage)
      small.experts_only.push_back(d.device);
  }
  return small;
}

}  // namespace troupe
