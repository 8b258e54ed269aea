#include "model/placement/next_step.h"

#include <doctest/doctest.h>

#include <set>

#include "model/placement/balance_experts.h"
#include "model/placement/slot_changes.h"
#include "tests/model/placement/layouts.h"

namespace troupe {
namespace {

constexpr std::uint64_t kExpert = 1000;

DeviceRef at(std::uint32_t node) { return {NodeId{node}, 0}; }

std::map<DeviceRef, std::uint64_t> bytes_on(const std::vector<LayerExperts>& layers) {
  std::map<DeviceRef, std::uint64_t> bytes;
  for (const auto& layer : layers) {
    for (const auto& slot : layer.slots) bytes[slot.device] += kExpert;
  }
  return bytes;
}

/// One step's promises.
void check_step(const NextStepInput& in, const std::vector<LayerExperts>& next) {
  auto held = bytes_on(in.current);
  std::int32_t changed = 0;
  std::uint64_t loaded = 0;
  std::map<std::int32_t, LayerExperts> current;
  for (const auto& layer : in.current) current[layer.layer] = layer;
  for (const auto& layer : next) {
    const auto changes = slot_changes(current[layer.layer], layer);
    changed += changes.empty() ? 0 : 1;
    for (const auto& slot : changes.added) {
      loaded += kExpert;
      held[slot.device] += kExpert;
    }
    std::set<std::int32_t> has;
    for (const auto& slot : layer.slots) has.insert(slot.expert);
    for (const auto& slot : current[layer.layer].slots) CHECK(has.contains(slot.expert));
  }
  CHECK(changed <= in.max_layers);
  CHECK(loaded <= std::max(in.max_bytes, kExpert));
  const auto before = bytes_on(in.current);
  for (const auto& [device, bytes] : in.memory) {
    const auto was = before.find(device);
    CHECK(held[device] <= std::max(bytes, was == before.end() ? 0 : was->second));
  }
}

/// Steps until nothing changes; how many it took.
int walk(NextStepInput& in, int most = 10'000) {
  for (int steps = 0; steps < most; ++steps) {
    const auto next = next_step(in);
    check_step(in, next);
    if (next == in.current) return steps;
    in.current = next;
  }
  FAIL("it does not end");
  return most;
}

NextStepInput rebalance(std::uint32_t seed, std::int32_t copies) {
  BalanceInput balance;
  balance.layers = {1, 2, 3, 4, 5};
  balance.num_experts = 32;
  balance.copies = copies;
  balance.devices = devices_of({2, 2, 1});
  balance.weight = zipf_weights(5, 32, 1, seed);
  NextStepInput in;
  in.current = *balance_experts(balance);
  balance.weight = zipf_weights(5, 32, 1, seed + 1000);
  balance.current = in.current;
  in.goal = *balance_experts(balance);
  in.expert_bytes = kExpert;
  in.max_layers = 2;
  in.max_bytes = 20 * kExpert;
  return in;
}

TEST_CASE("steps lead to the goal within their budgets") {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    auto in = rebalance(seed, 40);
    for (const auto& [device, bytes] : bytes_on(in.current))
      in.memory[device] = bytes + 3 * kExpert;
    CHECK(walk(in) > 2);
    CHECK(in.current == in.goal);
  }
}

TEST_CASE("one copy and one layer at a time is enough") {
  auto in = rebalance(3, 36);
  in.max_layers = 1;
  in.max_bytes = 0;
  walk(in);
  CHECK(in.current == in.goal);
}

TEST_CASE("room for one more copy a device is enough") {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    auto in = rebalance(seed, 40);
    for (const auto& [device, bytes] : bytes_on(in.goal)) in.memory[device] = bytes + kExpert;
    for (const auto& [device, bytes] : bytes_on(in.current))
      in.memory[device] = std::max(in.memory[device], bytes + kExpert);
    walk(in);
    CHECK(in.current == in.goal);
  }
}

TEST_CASE("full devices: spare copies go first, and last copies never") {
  // Expert 0 is on both full devices; 2 shall take its place on device 2, and come off device 1.
  NextStepInput in;
  in.current = {{1, {{0, at(1)}, {0, at(2)}, {1, at(2)}, {2, at(1)}}}};
  in.goal = {{1, {{0, at(1)}, {1, at(2)}, {2, at(1)}, {2, at(2)}}}};
  in.expert_bytes = kExpert;
  in.max_bytes = 100 * kExpert;
  in.memory = {{at(1), 2 * kExpert}, {at(2), 2 * kExpert}};
  CHECK(walk(in) == 2);
  CHECK(in.current == in.goal);
  // Two last copies on two full devices cannot change places: it stays, whole.
  in.current = {{1, {{0, at(1)}, {1, at(2)}}}};
  in.goal = {{1, {{0, at(2)}, {1, at(1)}}}};
  in.memory = {{at(1), kExpert}, {at(2), kExpert}};
  const auto stays = in.current;
  CHECK(next_step(in) == stays);
  in.memory[at(1)] = 2 * kExpert;
  CHECK(walk(in) == 2);
  CHECK(in.current == in.goal);
}

TEST_CASE("layers with experts that have no copy come first, and those experts first") {
  NextStepInput in;
  in.current = {{1, {{0, at(1)}, {1, at(1)}}}, {2, {{0, at(1)}}}, {3, {}}};
  in.goal = {{1, {{0, at(1)}, {1, at(2)}}},
             {2, {{0, at(1)}, {0, at(2)}, {1, at(2)}}},
             {3, {{0, at(2)}, {1, at(2)}}}};
  in.expert_bytes = kExpert;
  in.max_bytes = kExpert;
  const auto first = next_step(in);
  CHECK(first[0] == in.current[0]);
  CHECK(first[1].slots == std::vector<ExpertSlot>{{0, at(1)}, {1, at(2)}});
  CHECK(first[2] == in.current[2]);
  in.max_layers = 2;
  in.max_bytes = 100 * kExpert;
  const auto both = next_step(in);
  CHECK(both[0] == in.current[0]);
  CHECK(both[1] == in.goal[1]);
  CHECK(both[2] == in.goal[2]);
}

TEST_CASE("from nothing, to nothing, and nothing to do") {
  auto in = rebalance(1, 40);
  in.goal = in.current;
  CHECK(next_step(in) == in.current);
  in.current.clear();
  walk(in);
  CHECK(in.current == in.goal);
  in.goal.clear();  // layers that the goal does not name stay
  CHECK(next_step(in) == in.current);
  in.goal = rebalance(2, 40).goal;
  in.max_layers = 0;
  CHECK(next_step(in) == in.current);
}

}  // namespace
}  // namespace troupe
