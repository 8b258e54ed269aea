#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "model/placement/rank_seats.h"
#include "model/placement/replan.h"
#include "tests/model/placement/plan_checks.h"

// Where the tensor-parallel ranks of a stage go.

namespace troupe {
namespace {

using namespace testing;

/// Devices so many a node, all alike.
PlacementInput nodes_of(const std::vector<int>& devices, int ranks, int stages = 1) {
  auto in = small_input(0, 0);
  for (std::size_t n = 0; n < devices.size(); ++n)
    for (int d = 0; d < devices[n]; ++d)
      in.devices.push_back(
          {{NodeId{static_cast<std::uint32_t>(n + 1)}, static_cast<std::uint32_t>(d)},
           "cpu",
           1024 * kMiB});
  in.engine.tensor_parallel_size = ranks;
  in.engine.pipeline_parallel_size = stages;
  return in;
}

/// The devices of all shards in order, as "1/0 1/1"; a comma after each stage, a bar after each
/// replica.
std::string text_of(const Placement& p) {
  std::string text;
  const ShardPlacement* before = nullptr;
  for (const auto& s : p.shards) {
    if (before)
      text += before->replica != s.replica ? " | " : before->stage != s.stage ? ", " : " ";
    text += std::to_string(s.device.node.value) + "/" + std::to_string(s.device.index);
    before = &s;
  }
  return text;
}

TEST_CASE("ranks of a stage: on devices of their own, on one node if one has enough") {
  struct Row {
    std::vector<int> devices;
    int ranks, stages;
    const char* shards;
  };
  const Row rows[] = {
      // One device for all of them.
      {{1}, 2, 1, "1/0 1/0"},
      {{1}, 8, 1, "1/0 1/0 1/0 1/0 1/0 1/0 1/0 1/0"},
      {{1}, 2, 2, "1/0 1/0, 1/0 1/0"},
      // As many as there are devices, and more.
      {{2}, 2, 1, "1/0 1/1"},
      {{2}, 4, 1, "1/0 1/0 1/1 1/1"},
      {{3}, 2, 1, "1/0 1/1"},
      {{3}, 4, 1, "1/0 1/0 1/1 1/2"},
      {{3}, 8, 1, "1/0 1/0 1/0 1/1 1/1 1/1 1/2 1/2"},
      {{4}, 2, 1, "1/0 1/1 | 1/2 1/3"},
      {{4}, 4, 1, "1/0 1/1 1/2 1/3"},
      {{5}, 4, 1, "1/0 1/1 1/2 1/3"},
      {{6}, 4, 1, "1/0 1/1 1/2 1/3"},
      {{7}, 2, 1, "1/0 1/1 | 1/2 1/3 | 1/4 1/5"},
      {{8}, 4, 1, "1/0 1/1 1/2 1/3 | 1/4 1/5 1/6 1/7"},
      {{8}, 8, 1, "1/0 1/1 1/2 1/3 1/4 1/5 1/6 1/7"},
      // Several nodes.
      {{1, 1}, 2, 1, "1/0 2/0"},
      {{1, 1}, 4, 1, "1/0 1/0 2/0 2/0"},
      {{2, 2}, 2, 1, "1/0 1/1 | 2/0 2/1"},
      {{2, 2}, 4, 1, "1/0 1/1 2/0 2/1"},
      {{1, 2}, 2, 1, "2/0 2/1"},
      {{1, 1, 2}, 2, 1, "3/0 3/1 | 1/0 2/0"},
      {{3, 3}, 2, 1, "1/0 1/1 | 2/0 2/1 | 1/2 2/2"},  // none idles while another has two
      {{1, 2, 3}, 4, 1, "1/0 3/0 3/1 3/2"},           // on no more nodes than need be
      {{4, 4}, 4, 1, "1/0 1/1 1/2 1/3 | 2/0 2/1 2/2 2/3"},
      {{4, 4}, 8, 1, "1/0 1/1 1/2 1/3 2/0 2/1 2/2 2/3"},
      // Pipelines.
      {{4}, 2, 2, "1/0 1/1, 1/2 1/3"},
      {{2, 2}, 2, 2, "1/0 1/1, 2/0 2/1"},
      {{2, 2}, 4, 2, "1/0 1/1 2/0 2/1, 1/0 1/1 2/0 2/1"},
      {{2, 1}, 2, 2, "1/0 1/1, 1/0 1/1"},
      {{4, 4}, 2, 2, "1/0 1/1, 1/2 1/3 | 2/0 2/1, 2/2 2/3"},
      {{1, 1, 1}, 2, 3, "1/0 2/0, 1/0 3/0, 2/0 3/0"},
  };
  for (const Row& row : rows) {
    auto in = nodes_of(row.devices, row.ranks, row.stages);
    CAPTURE(row.shards);
    const auto p = plan_placement(in);
    REQUIRE_MESSAGE(p.ok(), p.error().message);
    CHECK(text_of(*p) == row.shards);
    check_layers(in, *p);
    check_experts(in, *p);
    check_memory(in, *p);
    std::reverse(in.devices.begin(), in.devices.end());
    CHECK(*plan_placement(in) == *p);
  }
}

TEST_CASE("a node without room for all ranks of a stage gives way to one that has it") {
  auto in = nodes_of({2, 2}, 2);
  in.engine.data_parallel_size = 1;
  in.devices[1].memory_total = 8 * kMiB;
  CHECK(text_of(*plan_placement(in)) == "2/0 2/1");
  in.devices[2].memory_total = 8 * kMiB;  // none has it
  CHECK(text_of(*plan_placement(in)) == "1/0 2/1");
  in.devices[3].memory_total = 8 * kMiB;  // one device is left
  CHECK(text_of(*plan_placement(in)) == "1/0 1/0");
}

TEST_CASE("all ranks of a replica keep as many tokens as the one with the least room") {
  auto in = nodes_of({2}, 2);
  in.model.kv_bytes_per_token_layer = 16000;
  const auto roomy = plan_placement(in);
  REQUIRE(roomy.ok());
  in.devices[1].memory_total = 600 * kMiB;
  const auto tight = plan_placement(in);
  REQUIRE(tight.ok());
  CHECK(text_of(*tight) == "1/0 1/1");
  CHECK(tight->replicas[0].kv_blocks < roomy->replicas[0].kv_blocks);
  check_memory(in, *tight);
  // As with a stage: a device that would halve the cache of all gets no rank.
  in.devices[1].memory_total = 100 * kMiB;
  const auto without = plan_placement(in);
  REQUIRE(without.ok());
  CHECK(text_of(*without) == "1/0 1/0");
}

TEST_CASE("ranks that a node has in memory go there") {
  auto in = nodes_of({1, 1, 1}, 2);
  const auto last = static_cast<std::int32_t>(in.model.layers.size()) - 1;
  in.held_shards[NodeId{3}] = {{0, last, {0, 2}}};
  in.held_shards[NodeId{2}] = {{0, last, {1, 2}}};
  CHECK(text_of(*plan_placement(in)) == "3/0 2/0");
  CHECK(plan_placement(in)->replicas[0].node == NodeId{3});
  in.held_shards[NodeId{3}] = {{0, last, {1, 4}}, {0, last, {}}};  // of other splits
  CHECK(text_of(*plan_placement(in)) == "1/0 2/0");
}

TEST_CASE("what lacks is said of the rank that finds no room") {
  auto in = nodes_of({1, 1}, 2);
  in.model.num_experts = 0;
  in.devices[1].memory_total = kMiB;
  in.devices[0].memory_total = 20 * kMiB;
  const auto p = plan_placement(in);
  REQUIRE(!p.ok());
  CHECK(p.error().code == ErrorCode::kResourceExhausted);
  CHECK_MESSAGE(contains(p.error().message, "layers 0-4, rank 1 of 2, need "), p.error().message);
  CHECK(contains(p.error().message, "raise --tensor-parallel-size or --pipeline-parallel-size"));
}

ReplanInput replan_of(const PlacementInput& in) {
  ReplanInput input;
  input.base = in;
  input.before = *plan_placement(in);
  input.base.next_replica = static_cast<std::uint32_t>(input.before.replicas.size());
  input.base.version = PlacementVersion{8};
  return input;
}

void lose_node(ReplanInput& input, NodeId node) {
  std::erase_if(input.base.devices, [&](const auto& d) { return d.device.node == node; });
}

TEST_CASE("a rank's node is lost: its replica ends as a whole, and another one begins") {
  ReplanInput input = replan_of(nodes_of({1, 1, 1}, 2));
  REQUIRE(text_of(input.before) == "1/0 2/0");
  lose_node(input, NodeId{2});
  CHECK(living_part(input.before, input.base.devices).shards.empty());
  const auto repaired = repair_placement(input);
  REQUIRE_MESSAGE(repaired.ok(), repaired.error().message);
  CHECK(text_of(*repaired) == "1/0 3/0");
  REQUIRE(repaired->replicas.size() == 1);
  CHECK(repaired->replicas[0].id == 1);  // not that of the one that ended
  check_layers(input.base, *repaired);
  CHECK(can_serve(*repaired, input.base.model));
  // One device is left: both ranks share it.
  input.before = *repaired;
  lose_node(input, NodeId{3});
  CHECK(text_of(*repair_placement(input)) == "1/0 1/0");
}

TEST_CASE("a loss leaves the replicas that it does not touch; the goal brings the others back") {
  ReplanInput input = replan_of(nodes_of({2, 2, 2}, 2));
  REQUIRE(text_of(input.before) == "1/0 1/1 | 2/0 2/1 | 3/0 3/1");
  std::erase_if(input.base.devices, [](const auto& d) {
    return d.device == DeviceRef{NodeId{2}, 1};
  });
  const auto repaired = repair_placement(input);
  REQUIRE(repaired.ok());
  CHECK(text_of(*repaired) == "1/0 1/1 | 3/0 3/1");
  input.before = *repaired;
  CHECK(text_of(*goal_placement(input)) == "1/0 1/1 | 3/0 3/1");  // five devices, two replicas
  input.base.devices.push_back({{NodeId{4}, 0}, "cpu", 1024 * kMiB});
  const auto goal = goal_placement(input);
  REQUIRE(goal.ok());
  CHECK(text_of(*goal) == "1/0 1/1 | 3/0 3/1 | 2/0 4/0");
  CHECK(goal->replicas[0] == input.before.replicas[0]);
  CHECK(goal->replicas[1] == input.before.replicas[1]);
  check_layers(input.base, *goal);
}

TEST_CASE("a device that leaves takes all ranks of its stage with it") {
  ReplanInput input = replan_of(nodes_of({2, 2}, 2));
  input.leaving = {DeviceRef{NodeId{1}, 1}};
  const auto goal = goal_placement(input);
  REQUIRE_MESSAGE(goal.ok(), goal.error().message);
  CHECK(text_of(*goal) == "2/0 2/1");
  CHECK(goal->replicas[0].id == 1);
}

TEST_CASE("what each node's loss would mean where ranks are on all of them") {
  ReplanInput input = replan_of(nodes_of({1, 1}, 2));
  for (const NodeId node : {NodeId{1}, NodeId{2}}) input.tier_bytes[node] = 64 * kMiB;
  input.before = *goal_placement(input);
  const Survival survival = survival_of(input);
  CHECK(survival.at_once.empty());
  CHECK(survival.with_reload == std::vector{NodeId{1}, NodeId{2}});
}

TEST_CASE("seats: whatever is on the devices, different ones, none busier than need be") {
  std::uint32_t state = 1;
  const auto pick = [&](std::uint32_t below) {
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % below;
  };
  for (int round = 0; round < 2000; ++round) {
    std::vector<Seat> seats;
    std::uint32_t node = 0;
    for (std::uint32_t d = 0, n = pick(12); d < n; ++d) {
      if (pick(3) == 0) ++node;
      seats.push_back({d, NodeId{node}, pick(3), 0});
    }
    const std::size_t count = 1u << pick(4);
    const auto best = best_seats(seats, count);
    REQUIRE(best.size() == std::min(count, seats.size()));
    std::set<std::size_t> devices;
    std::vector<std::size_t> shards;
    std::size_t busiest = 0;
    for (const Seat& seat : best) {
      devices.insert(seat.device);
      busiest = std::max(busiest, seat.shards);
    }
    CHECK(devices.size() == best.size());
    if (best.empty()) continue;
    for (const Seat& seat : seats) shards.push_back(seat.shards);
    std::sort(shards.begin(), shards.end());
    CHECK(busiest == shards[best.size() - 1]);
    // On one node if that is possible with devices no busier.
    std::map<NodeId, std::size_t> free;
    for (const Seat& seat : seats) free[seat.node] += seat.shards <= busiest ? 1 : 0;
    const bool one =
        std::any_of(free.begin(), free.end(), [&](const auto& n) { return n.second >= count; });
    std::set<NodeId> used;
    for (const Seat& seat : best) used.insert(seat.node);
    if (one) CHECK(used.size() == 1);
  }
}

}  // namespace
}  // namespace troupe
