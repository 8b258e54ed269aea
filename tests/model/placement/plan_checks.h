#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "model/placement/plan_placement.h"

/// A small model and what must hold of every plan.
namespace troupe::testing {

inline constexpr std::uint64_t kMiB = 1ull << 20;

/// About the demo model: 5 layers, 4 of them with 32 experts, 800 bytes of KV a token in bf16.
inline ModelCosts small_model() {
  ModelCosts m;
  for (int i = 0; i < 5; ++i) m.layers.push_back({kMiB, i > 0});
  m.num_experts = 32;
  m.expert_bytes = 100'000;
  m.embedding_bytes = 2 * kMiB;
  m.head_bytes = 2 * kMiB;
  m.kv_bytes_per_token_layer = 160;
  m.kv_bytes_per_token = 4;
  return m;
}

inline PlacementInput small_input(int nodes, int devices_per_node,
                                  std::uint64_t memory = 1024 * kMiB) {
  PlacementInput in;
  for (int n = 1; n <= nodes; ++n) {
    for (int d = 0; d < devices_per_node; ++d) {
      in.devices.push_back(
          {{NodeId{static_cast<std::uint32_t>(n)}, static_cast<std::uint32_t>(d)}, "cpu", memory});
    }
  }
  in.model = small_model();
  in.engine.max_model_len = 4096;
  in.version = PlacementVersion{7};
  return in;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Every replica has all layers, each stage all of its ranks, in order.
inline void check_layers(const PlacementInput& in, const Placement& p) {
  const auto ranks = static_cast<std::uint32_t>(in.engine.tensor_parallel_size);
  std::map<std::uint32_t, std::int32_t> next;
  std::map<std::uint32_t, std::uint32_t> shards;
  const ShardPlacement* before = nullptr;
  for (const auto& s : p.shards) {
    const std::uint32_t index = shards[s.replica]++;
    CHECK(s.stage == index / ranks);
    CHECK(s.tp_rank == index % ranks);
    CHECK(s.first_layer == (s.tp_rank == 0 ? next[s.replica] : before->first_layer));
    CHECK(s.last_layer >= s.first_layer);
    if (s.tp_rank > 0) CHECK(s.last_layer == before->last_layer);
    next[s.replica] = s.last_layer + 1;
    before = &s;
  }
  CHECK(next.size() == p.replicas.size());
  for (const auto& r : p.replicas) {
    CHECK(next[r.id] == static_cast<std::int32_t>(in.model.layers.size()));
    CHECK(shards[r.id] == static_cast<std::uint32_t>(in.engine.pipeline_parallel_size) * ranks);
    const auto first = std::find_if(p.shards.begin(), p.shards.end(),
                                    [&](const auto& s) { return s.replica == r.id; });
    CHECK(first->device.node == r.node);
    CHECK(static_cast<std::int64_t>(r.kv_blocks) * in.engine.block_size >= in.engine.max_model_len);
  }
}

/// Whether every device has room for an even share of the experts beside its shards.
inline bool even_share_fits(const PlacementInput& in, const Placement& p, std::size_t copies) {
  const std::size_t n = in.devices.size();
  const std::uint64_t share = (copies * p.experts.size() + n - 1) / n * in.model.expert_bytes;
  std::map<DeviceRef, std::uint64_t> memory;
  for (const auto& d : in.devices) memory[d.device] = d.memory_total;
  const auto uses = placement_use(in, p);
  return std::all_of(uses.begin(), uses.end(), [&](const auto& use) {
    return use.shard_bytes + use.kv_bytes + share <= plannable_bytes(memory.at(use.device));
  });
}

inline void check_experts(const PlacementInput& in, const Placement& p) {
  const std::size_t n = in.devices.size();
  const auto experts = static_cast<std::size_t>(in.model.num_experts);
  const std::size_t copies =
      std::min(experts + static_cast<std::size_t>(in.engine.redundant_experts), experts * n);
  const bool even = even_share_fits(in, p, copies);
  std::map<DeviceRef, std::size_t> total;
  for (const auto& layer : p.experts) {
    // Further copies are left out where only some devices have room for any.
    if (even) REQUIRE(layer.slots.size() == copies);
    REQUIRE(layer.slots.size() <= copies);
    std::map<DeviceRef, std::size_t> on;
    std::map<std::int32_t, std::set<DeviceRef>> holders;
    for (const auto& s : layer.slots) {
      ++on[s.device];
      ++total[s.device];
      CHECK(holders[s.expert].insert(s.device).second);  // never two copies on one device
    }
    CHECK(holders.size() == experts);
    for (const auto& d : in.devices) {
      if (!even) continue;
      CHECK(on[d.device] >= copies / n);
      CHECK(on[d.device] <= (copies + n - 1) / n);
    }
  }
  if (p.experts.empty() || !even) return;
  // Over all layers, too, nobody has more than the ceiling.
  const std::size_t all = copies * p.experts.size();
  for (const auto& d : in.devices) CHECK(total[d.device] <= (all + n - 1) / n);
}

inline void check_memory(const PlacementInput& in, const Placement& p) {
  std::map<DeviceRef, std::uint64_t> memory;
  for (const auto& d : in.devices) memory[d.device] = d.memory_total;
  for (const auto& use : placement_use(in, p)) {
    CHECK(use.total() <= plannable_bytes(memory.at(use.device)));
  }
}

}  // namespace troupe::testing
