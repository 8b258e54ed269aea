#include "model/placement/fewest_moves.h"

#include <doctest/doctest.h>

#include <chrono>
#include <map>

#include "model/placement/balance_experts.h"
#include "model/placement/layout_measures.h"
#include "tests/model/placement/layouts.h"
#include "tests/promises.h"

namespace troupe {
namespace {

DeviceRef at(std::uint32_t node, std::uint32_t index) { return {NodeId{node}, index}; }

LayerExperts random_layout(const std::vector<DeviceRef>& devices, std::size_t per_device,
                           std::int32_t experts, std::mt19937& random) {
  LayerExperts layer{1, {}};
  for (const auto& device : devices) {
    for (std::size_t i = 0; i < per_device; ++i)
      layer.slots.push_back(
          {static_cast<std::int32_t>(random() % static_cast<unsigned>(experts)), device});
  }
  return layer;
}

/// Node and device places exchanged at random, which costs nothing that matters.
LayerExperts shuffled(const LayerExperts& layer, std::uint32_t nodes, std::uint32_t per_node,
                      std::mt19937& random) {
  std::map<DeviceRef, DeviceRef> to;
  std::vector<std::uint32_t> node(nodes);
  std::iota(node.begin(), node.end(), 1u);
  for (std::size_t n = nodes; n > 1; --n) std::swap(node[n - 1], node[random() % n]);
  for (std::uint32_t n = 0; n < nodes; ++n) {
    std::vector<std::uint32_t> index(per_node);
    std::iota(index.begin(), index.end(), 0u);
    for (std::size_t i = per_node; i > 1; --i) std::swap(index[i - 1], index[random() % i]);
    for (std::uint32_t d = 0; d < per_node; ++d) to[at(n + 1, d)] = at(node[n], index[d]);
  }
  LayerExperts result{layer.layer, {}};
  for (const auto& slot : layer.slots) result.slots.push_back({slot.expert, to.at(slot.device)});
  return result;
}

TEST_CASE("a layout that only has its devices and nodes exchanged moves nothing") {
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    auto in = BalanceInput{};
    in.layers = {1};
    in.num_experts = 64;
    in.copies = 96;
    in.devices = devices_of({4, 4, 4});
    in.weight = zipf_weights(1, 64, 0.9, static_cast<std::uint32_t>(round));
    const auto layers = balance_experts(in);
    REQUIRE(layers.ok());
    const auto moves = fewest_moves((*layers)[0], shuffled((*layers)[0], 3, 4, random));
    CHECK(moves.changes.empty());
    CHECK(moves.layout == (*layers)[0]);
  }
}

TEST_CASE("no other naming moves fewer copies") {
  // 2 nodes of 3 devices: 2 * 3! * 3! namings, all tried.
  std::mt19937 random(5);
  for (int round = 0; round < 100; ++round) {
    const auto devices = devices_of({3, 3});
    const auto current = random_layout(devices, 3, 8, random);
    const auto computed = random_layout(devices, 3, 8, random);
    const auto moves = fewest_moves(current, computed);
    // Copies of one expert on one device count as one in the changes: compare what stays.
    const auto staying = [&](const LayerExperts& layout) {
      std::size_t stay = 0;
      for (const auto& a : current.slots) {
        for (const auto& b : layout.slots) stay += a == b ? 1 : 0;
      }
      return stay;
    };
    std::size_t best = 0;
    for (int swap = 0; swap < 2; ++swap) {
      std::vector<std::uint32_t> first{0, 1, 2};
      do {
        std::vector<std::uint32_t> second{0, 1, 2};
        do {
          LayerExperts named{1, {}};
          for (const auto& slot : computed.slots) {
            const bool one = slot.device.node == NodeId{1};
            const auto index = one ? first[slot.device.index] : second[slot.device.index];
            named.slots.push_back({slot.expert, at(one == (swap == 0) ? 1 : 2, index)});
          }
          best = std::max(best, staying(named));
        } while (std::next_permutation(second.begin(), second.end()));
      } while (std::next_permutation(first.begin(), first.end()));
    }
    CHECK(staying(moves.layout) == best);
  }
}

TEST_CASE("only what is alike is exchanged") {
  // Node 1 has two devices, node 2 one; device 1/1 has two slots.
  const LayerExperts computed{1, {{0, at(1, 0)}, {1, at(1, 1)}, {2, at(1, 1)}, {3, at(2, 0)}}};
  const LayerExperts current{1, {{1, at(1, 0)}, {2, at(1, 0)}, {3, at(1, 1)}, {0, at(2, 0)}}};
  CHECK(fewest_moves(current, computed).layout.slots == ordered_slots(computed.slots));
  // Two devices alike exchange their experts, unless they are of different kinds.
  const LayerExperts two{1, {{0, at(1, 0)}, {1, at(1, 1)}}};
  const LayerExperts turned{1, {{1, at(1, 0)}, {0, at(1, 1)}}};
  CHECK(fewest_moves(turned, two).changes.empty());
  const auto kinds = fewest_moves(turned, two, {{at(1, 1), 1}});
  CHECK(kinds.changes.added.size() == 2);
}

TEST_CASE("changes: what is loaded and what is dropped") {
  const LayerExperts from{1, {{2, at(1, 0)}, {0, at(1, 0)}, {1, at(9, 0)}}};
  const LayerExperts to{1, {{0, at(1, 0)}, {2, at(2, 0)}, {1, at(1, 0)}}};
  const auto changes = slot_changes(from, to);
  CHECK(changes.added == std::vector<ExpertSlot>{{1, at(1, 0)}, {2, at(2, 0)}});
  CHECK(changes.removed == std::vector<ExpertSlot>{{1, at(9, 0)}, {2, at(1, 0)}});
  CHECK(slot_changes(from, from).empty());
}

TEST_CASE("nothing there yet, or only on devices that are gone: everything is loaded") {
  const LayerExperts to{1, {{0, at(1, 0)}, {1, at(2, 0)}}};
  CHECK(fewest_moves({1, {}}, to).changes.added == to.slots);
  CHECK(fewest_moves({1, {{0, at(7, 0)}}}, to).layout == to);
  CHECK(fewest_moves(to, {1, {}}).changes.removed == to.slots);
}

TEST_CASE("144 devices take less than 50 ms a layer, as 18 nodes and as one") {
  std::mt19937 random(9);
  for (const auto& per_node : {std::vector<int>(18, 8), std::vector<int>{144}}) {
    const auto devices = devices_of(per_node);
    const auto current = random_layout(devices, 2, 256, random);
    const auto computed = random_layout(devices, 2, 256, random);
    auto least = std::chrono::steady_clock::duration::max();  // others may use the processor
    for (int i = 0; i < 5; ++i) {
      const auto start = std::chrono::steady_clock::now();
      CHECK(fewest_moves(current, computed).layout.slots.size() == 288);
      least = std::min(least, std::chrono::steady_clock::now() - start);
    }
    CAPTURE(per_node.size());
    promised("144 devices, a layer", least, std::chrono::milliseconds(50));
  }
}

}  // namespace
}  // namespace troupe
