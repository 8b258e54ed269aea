#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>

#include "model/placement/small_devices.h"
#include "tests/model/placement/plan_checks.h"

// Devices that hold as much or as little as they like.

namespace troupe {
namespace {

using namespace testing;

TEST_CASE("a device that can hold little is given little, one that can hold nothing nothing") {
  for (const int redundant : {0, 8}) {
    auto in = small_input(3, 1, 64 * kMiB);
    in.engine.max_model_len = 128;
    in.engine.redundant_experts = redundant;
    std::uint64_t little = 0;
    SUBCASE("room for two experts") { little = 250'000; }
    SUBCASE("room for none") { little = 90'000; }
    in.devices[1].memory_total = little;
    const auto p = plan_placement(in);
    REQUIRE_MESSAGE(p.ok(), p.error().message);
    check_layers(in, *p);
    check_experts(in, *p);
    check_memory(in, *p);
    std::map<NodeId, std::size_t> on;
    for (const auto& layer : p->experts)
      for (const auto& s : layer.slots) ++on[s.device.node];
    CHECK(on[NodeId{2}] == plannable_bytes(little) / in.model.expert_bytes);
    CHECK(on[NodeId{1}] - on[NodeId{3}] <= 1);
    const std::vector<DeviceRef> useless = small_devices(in).useless;
    CHECK((useless == std::vector<DeviceRef>{{NodeId{2}, 0}}) == (little < 100'000));
    std::reverse(in.devices.begin(), in.devices.end());
    CHECK(*plan_placement(in) == *p);
  }
}

TEST_CASE("whatever the devices hold: what a greedy fill can place is placed") {
  int fitted = 0, refused = 0;
  for (std::uint32_t seed = 1; seed <= 3000; ++seed) {
    std::mt19937_64 random(seed);
    const auto pick = [&](std::uint64_t low, std::uint64_t high) {
      return low + random() % (high - low + 1);
    };
    PlacementInput in;
    const auto nodes = pick(1, 6);
    for (std::uint32_t n = 1; n <= nodes; ++n)
      in.devices.push_back({{NodeId{n}, 0}, "cpu", pick(1, pick(0, 1) ? 12 : 64) * kMiB / 2});
    in.model = small_model();
    in.model.layers.assign(5, {pick(0, 2 * kMiB), true});
    in.engine.max_model_len = 1024;
    in.engine.pipeline_parallel_size = static_cast<std::int32_t>(pick(1, 5));
    // Heaviest stages first, each where most is left; then experts wherever they go.
    in.engine.data_parallel_size = 1;
    auto roomy = in;
    for (auto& d : roomy.devices) d.memory_total = 1ull << 40;
    const auto shape = plan_placement(roomy);
    REQUIRE(shape.ok());
    std::vector<std::uint64_t> stages, left;
    for (const auto& s : shape->shards) {
      const auto count = static_cast<std::uint64_t>(s.last_layer - s.first_layer + 1);
      stages.push_back(count * in.model.layers[0].bytes + (s.first_layer == 0 ? 2 * kMiB : 0) +
                       (s.last_layer == 4 ? 2 * kMiB : 0) + 1024 * (160 * count + 4));
    }
    std::sort(stages.rbegin(), stages.rend());
    for (const auto& d : in.devices) left.push_back(plannable_bytes(d.memory_total));
    bool greedy = true;
    for (const auto bytes : stages) {
      auto& most = *std::max_element(left.begin(), left.end());
      greedy = greedy && most >= bytes;
      most -= std::min(most, bytes);
    }
    std::uint64_t room = 0;
    for (const auto bytes : left) room += std::min<std::uint64_t>(bytes / 100'000, 5 * 32);
    greedy = greedy && room >= 5 * 32;
    CAPTURE(seed);
    const auto p = plan_placement(in);
    if (greedy) {
      ++fitted;
      REQUIRE_MESSAGE(p.ok(), p.error().message);
      check_layers(in, *p);
      check_experts(in, *p);
      check_memory(in, *p);
    } else {
      refused += p.ok() ? 0 : 1;
    }
  }
  CHECK(fitted > 500);
  CHECK(refused > 500);
}

}  // namespace
}  // namespace troupe
