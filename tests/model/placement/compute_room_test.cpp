#include "model/placement/compute_room.h"

#include <doctest/doctest.h>

#include <map>
#include <vector>

#include "model/placement/replan.h"
#include "model/placement/small_devices.h"
#include "tests/model/placement/plan_checks.h"

// Room to compute beside weights and caches, on devices of all sizes.

namespace troupe {
namespace {

using namespace testing;

/// A shard computes with 1 MiB for 16 tokens; experts with next to nothing, or as much for as many
/// pairs.
ComputeCosts costs(std::int32_t tokens, bool experts = false) {
  const std::uint64_t shard = static_cast<std::uint64_t>(tokens) * kMiB / 16;
  return {tokens, 2, [shard](std::int32_t, std::int32_t) { return shard; },
          [experts](std::int64_t pairs) {
            return experts ? static_cast<std::uint64_t>(pairs) * kMiB / 16 : 1000;
          }};
}

PlacementInput sized_input(const std::vector<std::uint64_t>& mebibytes) {
  auto in = small_input(static_cast<int>(mebibytes.size()), 1);
  in.engine.max_model_len = 1024;
  in.engine.max_num_batched_tokens = 2048;
  for (std::size_t d = 0; d < mebibytes.size(); ++d)
    in.devices[d].memory_total = mebibytes[d] * kMiB;
  return in;
}

std::vector<std::size_t> shards_on(const PlacementInput& in, const Placement& p) {
  std::vector<std::size_t> on(in.devices.size(), 0);
  for (const auto& shard : p.shards) ++on[shard.device.node.value - 1];
  return on;
}

Result<Placement> planned(PlacementInput& in, const CostsOfSteps& costs) {
  return plan_to_compute(
      in, costs, [&] { return plan_placement(in); }, kStepTokensMin);
}

TEST_CASE("a small device does not make the steps of all smaller, nor their caches") {
  struct Row {
    std::vector<std::uint64_t> mebibytes;
    std::int32_t tokens;
    std::vector<std::size_t> shards;
  };
  const Row rows[] = {
      {{256, 256, 256}, 2048, {1, 1, 1}},          // a step of 2048 takes 128 MiB
      {{512, 512, 100}, 2048, {2, 1, 0}},          // it holds experts only
      {{100, 512, 512}, 2048, {0, 2, 1}},          // in whatever order
      {{200, 200, 100}, 2048, {1, 1, 0}},          // two of 2048 rather than three of 1024
      {{100, 100, 100}, 1024, {1, 1, 1}},          // all are small
      {{200, 100, 100, 100}, 1024, {1, 1, 1, 1}},  // most are: four of 1024 rather than one
  };
  for (const Row& row : rows) {
    auto in = sized_input(row.mebibytes);
    const auto p = planned(in, [](std::int32_t tokens) { return costs(tokens); });
    REQUIRE_MESSAGE(p.ok(), p.error().message);
    CHECK(in.engine.max_num_batched_tokens == row.tokens);
    CHECK(shards_on(in, *p) == row.shards);
    check_layers(in, *p);
    check_experts(in, *p);
  }
}

TEST_CASE("a small device gets as many experts as it can compute with") {
  auto in = sized_input({1024, 1024, 40});
  in.engine.max_num_batched_tokens = 64;
  in.engine.data_parallel_size = 1;
  const auto p = planned(in, [](std::int32_t tokens) { return costs(tokens, true); });
  REQUIRE_MESSAGE(p.ok(), p.error().message);
  CHECK(in.engine.max_num_batched_tokens == 64);
  const auto bytes = compute_bytes(in, *p, costs(64, true));
  for (const auto& use : placement_use(in, *p))
    CHECK(use.total() + bytes.at(use.device) <= in.devices[use.device.node.value - 1].memory_total);
}

TEST_CASE("what the smallest steps lack is told, with advice that can help") {
  auto in = sized_input({100});
  const auto no_step = planned(in, [](std::int32_t tokens) {
    ComputeCosts large = costs(tokens + 16 * 1024);
    large.rows = tokens;
    return large;
  });
  REQUIRE(!no_step.ok());
  CHECK(contains(no_step.error().message, "what even steps of 8 tokens compute with"));
  CHECK(contains(no_step.error().message, "; lower --max-model-len or give it more memory."));
  in.compute = costs(2048);
  const auto one_size = plan_placement(in);
  REQUIRE(!one_size.ok());
  CHECK(contains(one_size.error().message, "what steps of 2048 tokens compute with"));
  CHECK(contains(one_size.error().message, "; lower --max-num-batched-tokens or"));
}

TEST_CASE("only the cache of a small device's own replica is small") {
  auto in = sized_input({600, 600, 240});
  in.model.kv_bytes_per_token_layer = 16000;
  const auto alone = planned(in, [](std::int32_t tokens) { return costs(tokens / 1024); });
  auto tight = in;
  const auto p = planned(tight, [](std::int32_t tokens) { return costs(tokens); });
  REQUIRE_MESSAGE(alone.ok(), alone.error().message);
  REQUIRE_MESSAGE(p.ok(), p.error().message);
  REQUIRE(p->replicas.size() == 3);
  CHECK(p->replicas[0].kv_blocks == alone->replicas[0].kv_blocks);
  CHECK(p->replicas[1].kv_blocks == alone->replicas[1].kv_blocks);
  CHECK(p->replicas[2].kv_blocks < alone->replicas[2].kv_blocks);
}

TEST_CASE("a small device is no stage of a pipeline whose cache it would halve") {
  struct Row {
    std::vector<std::uint64_t> mebibytes;
    std::vector<std::size_t> shards;
  };
  const Row rows[] = {
      {{1024, 1024, 1024}, {1, 1, 1}}, {{1024, 1024, 100}, {2, 1, 0}},
      {{1024, 1024, 200}, {1, 1, 1}},  // the cache is not twice as large without it
      {{1024, 100, 1024}, {2, 0, 1}},  {{1024, 1024, 600}, {1, 1, 1}},  // it has more than half
      {{200, 200, 200}, {1, 1, 1}},
  };
  for (const Row& row : rows) {
    auto in = sized_input(row.mebibytes);
    in.model.kv_bytes_per_token_layer = 16000;
    in.engine.pipeline_parallel_size = 3;
    const auto p = plan_placement(in);
    REQUIRE_MESSAGE(p.ok(), p.error().message);
    CHECK(shards_on(in, *p) == row.shards);
  }
}

TEST_CASE("the largest device does not say who is small while it leaves") {
  auto in = sized_input({1024, 1024, 100, 4096});
  in.model.kv_bytes_per_token_layer = 16000;
  in.engine.pipeline_parallel_size = 3;
  in.closed = {in.devices[3].device};
  const auto p = plan_placement(in);
  REQUIRE_MESSAGE(p.ok(), p.error().message);
  CHECK(shards_on(in, *p) == std::vector<std::size_t>{2, 1, 0, 0});
}

TEST_CASE("devices that cannot compute are told apart") {
  auto in = sized_input({1024, 100, 2, 40});
  const DeviceRef second{NodeId{2}, 0}, third{NodeId{3}, 0}, fourth{NodeId{4}, 0};
  in.compute = costs(2048, true);
  CHECK(small_devices(in).useless == std::vector<DeviceRef>{third});
  CHECK(small_devices(in).experts_only == std::vector<DeviceRef>{second, fourth});
  in.compute = costs(2048);
  CHECK(small_devices(in).useless.empty());
  CHECK(small_devices(in).experts_only == std::vector<DeviceRef>{second, fourth});
  in.compute.reset();
  CHECK(small_devices(in).experts_only.empty());
}

TEST_CASE("a goal has only replicas that leave room to compute, and keeps those that serve") {
  auto in = sized_input({512, 512, 100});
  ReplanInput replan;
  replan.base = in;
  replan.base.devices = {in.devices[0]};
  replan.before = *plan_placement(replan.base);
  REQUIRE(replan.before.replicas.size() == 1);
  replan.base = in;
  replan.base.version = PlacementVersion{8};
  replan.base.next_replica = 1;
  CHECK(goal_placement(replan)->replicas.size() == 3);
  replan.base.compute = costs(2048);
  const auto goal = goal_placement(replan);
  REQUIRE_MESSAGE(goal.ok(), goal.error().message);
  CHECK(shards_on(in, *goal)[2] == 0);
  replan.base.compute = costs(65536);  // no step at all: what serves goes on
  const auto as_it_is = goal_placement(replan);
  REQUIRE_MESSAGE(as_it_is.ok(), as_it_is.error().message);
  CHECK(as_it_is->replicas == replan.before.replicas);
}

}  // namespace
}  // namespace troupe
