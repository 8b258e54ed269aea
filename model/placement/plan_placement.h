#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "model/placement/expert_room.h"
#include "model/placement/model_costs.h"
#include "runtime/engine_options.h"
#include "runtime/placement.h"
#include "runtime/result.h"
#include "runtime/tensor_rank.h"

namespace troupe {

/// What a shard's KV cache takes by default at most on a CPU device, whose memory others share too.
inline constexpr std::uint64_t kCpuKvCacheBytesMax = 4ull << 30;
/// 1/16 of a device stays free for activations, buffers and the program itself.
inline constexpr std::uint64_t kPlanReserveDivisor = 16;

struct PlacementDevice {
  DeviceRef device;
  std::string kind = "cpu";  ///< cpu | cuda
  std::uint64_t memory_total = 0;
  bool operator==(const PlacementDevice&) const = default;
};

/// Weights of layers `first` to `last`, both included, as one tensor-parallel rank has them.
struct HeldShard {
  std::int32_t first = 0;
  std::int32_t last = 0;
  TensorRank rank = {};
  bool operator==(const HeldShard&) const = default;
};

struct PlacementInput {
  std::vector<PlacementDevice> devices;  ///< in any order
  ModelCosts model;
  EngineOptions engine;  ///< max_model_len must be resolved: above 0
  Numerics numerics = Numerics::kReference;
  PlacementVersion version;
  /// What steps take beside weights and caches. Without it nobody asks.
  std::optional<ComputeCosts> compute;
  /// Of CPU devices too; else their steps may take more of the host than is planned with.
  bool cpus_compute = true;

  Placement kept;              ///< replicas that stay as they are; its experts are not read
  std::set<DeviceRef> closed;  ///< of `devices`: they take no new shard
  /// Bytes that replicas hold until the new ones serve, beside what is kept.
  std::map<DeviceRef, std::uint64_t> taken;
  std::uint32_t next_replica = 0;  ///< id of the first new replica, unless a kept one has it
  /// Shards that a node has in memory: it gets such a shard rather than another node.
  std::map<NodeId, std::vector<HeldShard>> held_shards;
};

/// Decides which device holds what. Pure: the same devices, in whatever order, give the same
/// placement, so that a node that comes back finds its own weights in its part.
///
/// - Replicas: --data-parallel-size, or as many as fit up to one for each
///   --pipeline-parallel-size x --tensor-parallel-size devices. Shards go to devices in turn and
///   may share one.
/// - A replica's stages are contiguous ranges of layers with the least possible heaviest stage, in
/// bytes.
/// - Each stage is --tensor-parallel-size shards, its ranks: on different devices where there are
///   enough (rank_seats.h says which), else several share one. `model` and `compute` say what a
///   rank takes. A replica's node is that of rank 0 of its first stage.
/// - Experts: every layer has num_experts + --redundant-experts copies over all devices, as even as
///   there is room (expert_shares.h). Copies of one expert are on different devices, and on
///   different nodes where it can be; copies that would find no other device are left out.
///   They are laid out before the shards, so that they are even; where that leaves no replica room,
///   after them.
/// - KV blocks of a replica: the least over its shards of what --kv-cache-memory holds, or else of
/// what
///   the device's shards leave each other; on CPU devices half of that and kCpuKvCacheBytesMax at
///   most (but always one sequence of max_model_len), and never more than max_num_seqs such
///   sequences.
/// - Computing: with `compute` a shard only goes where a step has room beside it, its cache takes
///   what that leaves, and devices get as many experts as leave the room to compute with them,
///   if all find a place so. A device that cannot compute beside a shard holds experts only.
/// - A replica's cache is as small as that of its smallest stage: where stages on devices of less
///   than half the memory of the largest open one of their kind would halve it, they get none.
///
/// Errors: kInvalidArgument names the flag; kResourceExhausted says how many bytes are missing on
/// which devices.
Result<Placement> plan_placement(const PlacementInput& input);

/// Lays out the experts of all layers in so many bytes on each device, ordered by layer.
using ExpertLayout = std::function<Result<std::vector<LayerExperts>>(
    const std::map<DeviceRef, std::uint64_t>& room)>;
/// The same with experts of one's own.
Result<Placement> plan_placement(const PlacementInput& input, const ExpertLayout& lay_out);

/// What a block of the KV cache takes in a shard of the layers from the first to the last, which is
/// included.
std::uint64_t kv_block_bytes(const PlacementInput& input, std::int32_t first, std::int32_t last);

/// What a placement puts on one device, in bytes.
struct DeviceUse {
  DeviceRef device;
  std::uint64_t shard_bytes = 0;
  std::uint64_t expert_bytes = 0;
  std::uint64_t kv_bytes = 0;
  std::uint64_t total() const { return shard_bytes + expert_bytes + kv_bytes; }
};

/// One entry a device of the input, ordered by device.
std::vector<DeviceUse> placement_use(const PlacementInput& input, const Placement& placement);

/// What of a device's memory may be planned.
constexpr std::uint64_t plannable_bytes(std::uint64_t memory_total) {
  return memory_total - memory_total / kPlanReserveDivisor;
}

}  // namespace troupe
