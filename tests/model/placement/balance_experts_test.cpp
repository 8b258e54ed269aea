#include "model/placement/balance_experts.h"

#include <doctest/doctest.h>

#include <limits>
#include <map>
#include <set>
#include <string>

#include "model/placement/eplb.h"
#include "model/placement/layout_measures.h"
#include "model/placement/slot_changes.h"
#include "tests/model/placement/layouts.h"

namespace troupe {
namespace {

BalanceInput input_of(const std::vector<int>& per_node, std::int32_t experts, std::int32_t copies,
                      std::size_t layers, double exponent = 1) {
  BalanceInput in;
  for (std::size_t l = 0; l < layers; ++l) in.layers.push_back(static_cast<std::int32_t>(l + 1));
  in.num_experts = experts;
  in.copies = copies;
  in.devices = devices_of(per_node);
  in.weight = zipf_weights(layers, static_cast<std::size_t>(experts), exponent, 11);
  return in;
}

std::size_t nodes_in(const BalanceInput& in) {
  std::set<NodeId> nodes;
  for (const auto& d : in.devices) nodes.insert(d.node);
  return nodes.size();
}

/// Every promise but the spread, which depends on the sizes.
void check_rules(const BalanceInput& in, const std::vector<LayerExperts>& layers) {
  const std::size_t n = in.devices.size();
  const std::size_t copies =
      std::min(static_cast<std::size_t>(in.copies), static_cast<std::size_t>(in.num_experts) * n);
  REQUIRE(layers.size() == in.layers.size());
  std::map<DeviceRef, std::size_t> total;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    CHECK(layers[l].layer == in.layers[l]);
    CHECK(layers[l].slots.size() == copies);
    CHECK(layers[l].slots == ordered_slots(layers[l].slots));
    std::map<DeviceRef, std::size_t> on;
    std::map<std::int32_t, std::set<DeviceRef>> holders;
    bool twice = false;
    for (const auto& slot : layers[l].slots) {
      ++on[slot.device];
      ++total[slot.device];
      twice = twice || !holders[slot.expert].insert(slot.device).second;
    }
    CHECK_FALSE(twice);
    CHECK(holders.size() == static_cast<std::size_t>(in.num_experts));
    CHECK(holders.begin()->first == 0);
    CHECK(holders.rbegin()->first == in.num_experts - 1);
    for (const auto& device : in.devices) {
      CHECK(on[device] >= copies / n);
      CHECK(on[device] <= (copies + n - 1) / n);
    }
  }
  const std::size_t all = copies * layers.size();
  for (const auto& device : in.devices) CHECK(total[device] <= (all + n - 1) / n);
}

/// Experts with copies on fewer nodes than they could have.
std::size_t badly_spread(const BalanceInput& in, const std::vector<LayerExperts>& layers) {
  std::size_t bad = 0;
  for (const auto& layer : layers) {
    std::map<std::int32_t, std::pair<std::size_t, std::set<NodeId>>> experts;
    for (const auto& slot : layer.slots) {
      ++experts[slot.expert].first;
      experts[slot.expert].second.insert(slot.device.node);
    }
    for (const auto& [e, copies] : experts)
      bad += copies.second.size() < std::min(copies.first, nodes_in(in)) ? 1 : 0;
  }
  return bad;
}

TEST_CASE("on nodes alike every copy that can be is on a node of its own") {
  for (int nodes = 1; nodes <= 5; ++nodes) {
    for (const int devices : {1, 2, 3, 8}) {
      for (const int more : {0, 1, 7, 32, 64, 200}) {
        for (const int groups : {1, 4}) {
          auto in = input_of(std::vector<int>(static_cast<std::size_t>(nodes), devices), 32,
                             32 + more, 3);
          in.num_groups = groups;
          CAPTURE(nodes);
          CAPTURE(devices);
          CAPTURE(more);
          CAPTURE(groups);
          const auto layers = balance_experts(in);
          REQUIRE(layers.ok());
          check_rules(in, *layers);
          CHECK(badly_spread(in, *layers) == 0);
        }
      }
    }
  }
}

TEST_CASE("nodes of any sizes keep the rules") {
  for (const auto& per_node : std::vector<std::vector<int>>{
           {1, 2}, {4, 1}, {3, 2, 1}, {8, 8, 4}, {1, 1, 1, 5}, {7}, {2, 2, 2, 1}}) {
    for (const int experts : {1, 3, 32, 61}) {
      for (const int more : {0, 1, 13, 70}) {
        const auto in = input_of(per_node, experts, experts + more, 4, 1.3);
        CAPTURE(per_node.size());
        CAPTURE(experts);
        CAPTURE(more);
        const auto layers = balance_experts(in);
        REQUIRE(layers.ok());
        check_rules(in, *layers);
      }
    }
  }
}

TEST_CASE("more devices than copies: one slot here and there") {
  const auto in = input_of(std::vector<int>(100, 1), 32, 40, 5);
  const auto layers = balance_experts(in);
  REQUIRE(layers.ok());
  check_rules(in, *layers);
  CHECK(badly_spread(in, *layers) == 0);
}

TEST_CASE("an expert that takes nearly all tokens gets a copy on each device and no more") {
  auto in = input_of({2, 2}, 32, 64, 1);
  in.weight[0].assign(32, 1);
  in.weight[0][5] = 1e6;
  const auto layers = balance_experts(in);
  REQUIRE(layers.ok());
  check_rules(in, *layers);
  std::size_t hot = 0;
  for (const auto& slot : (*layers)[0].slots) hot += slot.expert == 5 ? 1 : 0;
  CHECK(hot == 4);
  CHECK(load_imbalance((*layers)[0], in.weight[0], in.devices) < 1.01);
}

TEST_CASE("loads are even where they can be, on sizes that do not divide too") {
  for (const auto& per_node : std::vector<std::vector<int>>{{2, 1}, {3, 3, 1}, {4, 4}, {5}}) {
    const auto in = input_of(per_node, 64, 96, 3, 0.8);
    const auto layers = balance_experts(in);
    REQUIRE(layers.ok());
    for (std::size_t l = 0; l < 3; ++l)
      CHECK(load_imbalance((*layers)[l], in.weight[l], in.devices) < 1.05);
  }
}

TEST_CASE("a slow device gets the slots of the others and less of the load") {
  auto in = input_of({1, 1, 1, 1}, 64, 96, 2, 0.8);
  in.speeds = {1, 1, 0.2, 1};
  const auto layers = balance_experts(in);
  REQUIRE(layers.ok());
  check_rules(in, *layers);
  const auto even = balance_experts(input_of({1, 1, 1, 1}, 64, 96, 2, 0.8));
  for (std::size_t l = 0; l < 2; ++l) {
    const double aware = load_imbalance((*layers)[l], in.weight[l], in.devices, in.speeds);
    const double unaware = load_imbalance((*even)[l], in.weight[l], in.devices, in.speeds);
    // No better than a little: it must hold a copy of what has one on every node, too.
    CHECK(aware < unaware * 0.85);
  }
}

TEST_CASE("the order of the devices does not matter, nor an absent or empty row") {
  auto in = input_of({2, 3, 1}, 32, 45, 3);
  const auto layers = balance_experts(in);
  REQUIRE(layers.ok());
  std::reverse(in.devices.begin(), in.devices.end());
  CHECK(*balance_experts(in) == *layers);
  in.weight.clear();
  const auto uniform = balance_experts(in);
  REQUIRE(uniform.ok());
  in.weight = {{}, std::vector<float>(32, 0), std::vector<float>(32, 3)};
  CHECK(*balance_experts(in) == *uniform);
}

TEST_CASE("what is balanced stays where it is") {
  auto in = input_of({4, 4}, 64, 80, 4);
  in.current = *balance_experts(in);
  CHECK(*balance_experts(in) == in.current);
  // Loads that change a little move copies, but not those that bring less than the tolerance.
  for (auto& row : in.weight) row[3] += 3000;
  in.tolerance = 0.5;
  CHECK(*balance_experts(in) == in.current);
  // A layout that breaks a rule does not stay, however even: two copies on one device here.
  auto& slots = in.current[0].slots;
  slots.back() = slots.front();
  const auto repaired = balance_experts(in);
  REQUIRE(repaired.ok());
  check_rules(in, *repaired);
}

std::size_t copies_moved(const std::vector<LayerExperts>& from,
                         const std::vector<LayerExperts>& to) {
  std::size_t moved = 0;
  for (std::size_t l = 0; l < from.size(); ++l) moved += slot_changes(from[l], to[l]).added.size();
  return moved;
}

double mean_imbalance(const BalanceInput& in, const std::vector<LayerExperts>& layers) {
  double sum = 0;
  for (std::size_t l = 0; l < layers.size(); ++l)
    sum += load_imbalance(layers[l], in.weight[l], in.devices);
  return sum / static_cast<double>(layers.size());
}

TEST_CASE("with a tolerance, loads that drift and a node that is lost move few copies") {
  for (const auto& per_node : std::vector<std::vector<int>>{{8, 8, 8, 8}, {5, 3, 4}}) {
    auto in = input_of(per_node, 256, 288, 8, 0.8);
    in.num_groups = 8;
    in.current = *balance_experts(in);
    std::mt19937 random(17);
    for (auto& row : in.weight) {
      for (float& w : row) w *= 0.8f + 0.4f * static_cast<float>(random() % 1000) / 1000;
    }
    const double stale = mean_imbalance(in, in.current);
    const auto fresh = *balance_experts(in);
    in.tolerance = 0.05;
    const auto drifted = *balance_experts(in);
    check_rules(in, drifted);
    CHECK(mean_imbalance(in, drifted) <= mean_imbalance(in, fresh) * 1.05);
    MESSAGE("loads drift by 20 %: imbalance " << stale << " -> " << mean_imbalance(in, drifted)
                                              << ", " << copies_moved(in.current, drifted) << " of "
                                              << 288 * 8 << " copies move; laid out from scratch "
                                              << mean_imbalance(in, fresh) << ", "
                                              << copies_moved(in.current, fresh));
    CHECK(copies_moved(in.current, drifted) * 3 < copies_moved(in.current, fresh));

    in.current = drifted;
    std::size_t lost = 0;
    for (const auto& layer : in.current) {
      for (const auto& slot : layer.slots) lost += slot.device.node == NodeId{2} ? 1 : 0;
    }
    in.devices.erase(std::remove_if(in.devices.begin(), in.devices.end(),
                                    [](const auto& d) { return d.node == NodeId{2}; }),
                     in.devices.end());
    const auto recovered = *balance_experts(in);
    check_rules(in, recovered);
    MESSAGE("a node is lost: " << copies_moved(in.current, recovered) << " copies are loaded for "
                               << lost << " that were on it");
    CHECK(copies_moved(in.current, recovered) < lost * 2);
  }
}

TEST_CASE("a device that is gone is left out and one that has come is used") {
  auto in = input_of({2, 2}, 32, 48, 3);
  in.current = *balance_experts(in);
  in.devices = devices_of({2, 1, 3});
  const auto layers = balance_experts(in);
  REQUIRE(layers.ok());
  check_rules(in, *layers);
}

TEST_CASE("input that makes no layout is refused") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<BalanceInput> bad(12, input_of({2, 2}, 32, 40, 2));
  bad[0].devices.clear();
  bad[1].devices.push_back(bad[1].devices[0]);
  bad[2].num_experts = 0;
  bad[3].num_experts = 100'000;
  bad[4].copies = 31;
  bad[5].copies = std::numeric_limits<std::int32_t>::max();
  bad[6].num_groups = 0;
  bad[7].layers = {2, 2};
  bad[8].weight[1][3] = nan;
  bad[9].weight.pop_back();
  bad[10].speeds = {1, 1, 0, 1};
  bad[11].speeds = {1};
  for (std::size_t i = 0; i < bad.size(); ++i) {
    CAPTURE(i);
    const auto layers = balance_experts(bad[i]);
    REQUIRE(!layers.ok());
    CHECK(layers.error().code == ErrorCode::kInvalidArgument);
    CHECK(layers.error().message.back() == '.');
  }
}

/// What the published plan alone comes to, with its GPUs in the order of the devices.
std::vector<LayerExperts> published_layout(const BalanceInput& in) {
  const auto plan = rebalance_experts({in.weight, in.copies, in.num_groups,
                                       static_cast<std::int64_t>(nodes_in(in)),
                                       static_cast<std::int64_t>(in.devices.size())});
  REQUIRE(plan.ok());
  std::vector<LayerExperts> layers;
  const auto per_device = static_cast<std::size_t>(in.copies) / in.devices.size();
  for (std::size_t l = 0; l < in.layers.size(); ++l) {
    layers.push_back({in.layers[l], {}});
    for (std::size_t p = 0; p < plan->phy2log[l].size(); ++p)
      layers[l].slots.push_back({plan->phy2log[l][p], in.devices[p / per_device]});
  }
  return layers;
}

// The figures of model/placement/README.md.
TEST_CASE("the presets: far more experts survive the loss of a node, as evenly loaded") {
  const struct {
    const char* name;
    int nodes;
  } presets[] = {{"prefill EP32", 4}, {"decode EP144", 18}};
  for (const auto& preset : presets) {
    for (const double exponent : {0.5, 0.8, 1.0}) {
      auto in = input_of(std::vector<int>(static_cast<std::size_t>(preset.nodes), 8), 256, 288, 58,
                         exponent);
      in.num_groups = 8;
      const auto before = published_layout(in);
      const auto after = balance_experts(in);
      REQUIRE(after.ok());
      check_rules(in, *after);
      CHECK(badly_spread(in, *after) == 0);
      const auto survive_before = experts_surviving_any_node_loss(before);
      const auto survive_after = experts_surviving_any_node_loss(*after);
      const double even_before = mean_imbalance(in, before),
                   even_after = mean_imbalance(in, *after);
      MESSAGE(std::string(preset.name)
              << ", loads as 1/rank^" << exponent << ": of " << 256 * 58 << " experts survive "
              << survive_before << " before, " << survive_after << " after; imbalance "
              << even_before << " before, " << even_after << " after");
      CHECK(survive_after >= survive_before);
      CHECK(even_after <= even_before * 1.02);
    }
  }
}

}  // namespace
}  // namespace troupe
