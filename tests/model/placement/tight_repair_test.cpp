#include <doctest/doctest.h>

#include <string>

#include "model/placement/compute_room.h"
#include "model/placement/replan.h"

// Repairs where the memory that is left has to hold what steps compute with.

namespace troupe {
namespace {

/// Four layers, three of them with sixteen experts, on accelerators of 64 MiB.
ReplanInput accelerators(std::uint32_t nodes, std::int32_t redundant = 0) {
  ReplanInput input;
  for (std::uint32_t n = 1; n <= nodes; ++n)
    input.base.devices.push_back({{NodeId{n}, 0}, "cuda", 64ull << 20});
  input.base.model.layers = {{1 << 20, false}, {1 << 20, true}, {1 << 20, true}, {1 << 20, true}};
  input.base.model.num_experts = 16;
  input.base.model.expert_bytes = 1 << 20;
  input.base.model.kv_bytes_per_token_layer = 8;
  input.base.engine.max_model_len = 128;
  input.base.engine.redundant_experts = redundant;
  input.base.engine.data_parallel_size = 1;
  input.base.version = PlacementVersion{1};
  return input;
}

/// A shard computes with so many MiB.
void compute_with(ReplanInput& input, std::uint64_t mib) {
  input.base.compute = ComputeCosts{64, 2, [mib](std::int32_t, std::int32_t) { return mib << 20; },
                                    [](std::int64_t) { return std::uint64_t{0}; }};
}

void without_node(ReplanInput& input, NodeId node) {
  std::erase_if(input.base.devices, [&](const auto& d) { return d.device.node == node; });
}

TEST_CASE("a repair leaves room to compute, or says what lacks") {
  for (const bool fits : {true, false}) {
    ReplanInput input = accelerators(2);
    input.before = *plan_placement(input.base);
    without_node(input, input.before.replicas[0].node);
    compute_with(input, fits ? 8 : 16);
    const auto repaired = repair_placement(input);
    REQUIRE(repaired.ok() == fits);
    if (fits)
      CHECK(room_to_compute(input.base, *repaired));
    else
      CHECK(repaired.error().message.find("tokens compute with") != std::string::npos);
  }
}

TEST_CASE("a repair counts what replicas that live compute with") {
  ReplanInput input = accelerators(2);
  input.before = *plan_placement(input.base);
  without_node(input, NodeId{input.before.replicas[0].node == NodeId{1} ? 2u : 1u});
  compute_with(input, 8);
  CHECK(repair_placement(input));
  compute_with(input, 16);
  const auto repaired = repair_placement(input);
  REQUIRE(!repaired);
  CHECK(repaired.error().message.find("tokens compute with") != std::string::npos);
}

TEST_CASE("a repair may ask accelerators alone for room to compute") {
  ReplanInput input = accelerators(3);
  input.base.devices[1].kind = "cpu";
  input.base.engine.data_parallel_size = 3;
  input.before = *plan_placement(input.base);
  without_node(input, NodeId{3});
  compute_with(input, 40);
  CHECK(!repair_placement(input));  // 48 experts, and each device computes beside less than 20
  CHECK(!make_room(input));
  input.base.cpus_compute = false;
  const auto repaired = repair_placement(input);
  REQUIRE_MESSAGE(repaired.ok(), repaired.error().message);
  CHECK(can_serve(*repaired, input.base.model));
  CHECK(accelerators_lacking(input.base, *repaired).empty());
  CHECK(repaired->replicas.size() == 2);
  input.base.compute.reset();  // else the experts are even, and the accelerator lacks room
  const auto even = repair_placement(input);
  compute_with(input, 40);
  CHECK(accelerators_lack(input.base, *even) > 0);
}

TEST_CASE("what a loss would mean heeds what replicas that live compute with") {
  ReplanInput input = accelerators(2);
  input.base.engine.data_parallel_size = 2;
  input.before = *plan_placement(input.base);
  compute_with(input, 8);
  CHECK(survival_of(input).with_reload.size() == 2);
  input.living_compute = input.base.compute;
  input.living_compute->shard = [](std::int32_t, std::int32_t) { return 16ull << 20; };
  CHECK(survival_of(input).not_at_all.size() == 2);
  for (auto& d : input.base.devices) d.kind = "cpu";
  input.base.cpus_compute = false;
  CHECK(survival_of(input).with_reload.size() == 2);
}

TEST_CASE("spare copies make room to compute as well") {
  ReplanInput input = accelerators(3, 16);  // every expert twice
  input.before = *plan_placement(input.base);
  without_node(input, input.before.replicas[0].node);
  compute_with(input, 34);
  REQUIRE(!repair_placement(input));
  const auto fewer = make_room(input);
  REQUIRE_MESSAGE(fewer.ok(), fewer.error().message);
  input.before = *fewer;
  const auto repaired = repair_placement(input);
  REQUIRE(repaired);
  CHECK(can_serve(*repaired, input.base.model));
  CHECK(room_to_compute(input.base, *repaired));
}

}  // namespace
}  // namespace troupe
