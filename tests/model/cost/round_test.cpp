// Rounds of whole placements: bounds that hold, and pieces that add up.

#include "model/cost/round.h"

#include <doctest/doctest.h>

#include <cmath>

#include "tests/model/published_spec.h"

namespace troupe {
namespace {

using testing::published;

DeviceSpeed fast() {
  DeviceSpeed d;
  d.ceilings = {3.35e12, 67e12, 989e12, 1979e12, 50e9, 450e9};
  d.arithmetic = Arithmetic::kFp8;
  return d;
}

/// `count` devices on nodes of `per_node`, a replica of all layers on each, experts dealt out.
struct Cluster {
  Cluster(const ModelSpec& s, std::uint32_t count, std::uint32_t per_node) : spec(s) {
    for (std::uint32_t i = 0; i < count; ++i)
      devices.push_back({NodeId{1 + i / per_node}, i % per_node});
    for (std::uint32_t i = 0; i < count; ++i) {
      placement.replicas.push_back({i, devices[i].node, 1});
      placement.shards.push_back({i, 0, 0, 0, spec.num_layers() - 1, devices[i]});
    }
    for (std::int32_t layer = 0; layer < spec.num_layers(); ++layer) {
      const LayerSpec& l = spec.layers[static_cast<std::size_t>(layer)];
      if (!l.has_experts()) continue;
      LayerExperts experts{layer, {}};
      for (std::int32_t e = 0; e < l.experts.gate.experts; ++e)
        experts.slots.push_back({e, devices[static_cast<std::uint32_t>(e) % count]});
      placement.experts.push_back(experts);
      chances[layer] = chances_of_skew(l.experts.gate.experts, l.experts.gate.top_k, 1);
    }
  }
  ClusterCost cost(const DeviceSpeed& speed = fast()) const {
    ClusterCost::Input in{spec,      Numerics::kBf16,
                          placement, {speed},
                          {},        std::make_shared<Routes>(routes_of(placement, chances))};
    for (const DeviceRef& d : devices) in.kind[d] = 0;
    return ClusterCost(std::move(in));
  }

  const ModelSpec& spec;
  std::vector<DeviceRef> devices;
  Placement placement;
  std::map<std::int32_t, ExpertChances> chances;
};

TEST_CASE("DeepSeek-V3 on sixteen devices hits 6 of a device's 16 experts with a row each") {
  const ModelSpec spec = published("deepseek-v3");
  const ClusterCost cost = Cluster(spec, 16, 8).cost();
  CHECK(cost.round(decode_step(1, 4096), 1).hits == doctest::Approx(6.37).epsilon(0.01));
  CHECK(cost.round(decode_step(32, 4096), 1).hits == doctest::Approx(16).epsilon(0.01));
  CHECK(cost.imbalance() == doctest::Approx(1));
}

TEST_CASE("what a device of DeepSeek-V3 moves in a step") {
  const ModelSpec spec = published("deepseek-v3");
  const Round round = Cluster(spec, 16, 8).cost().round(decode_step(32, 4096), 1);
  // Layers without experts 17.2 GB, of which the embedding is not read, and 58 x 16 experts.
  CHECK(round.busiest.weight_bytes == doctest::Approx(17.3e9 + 58 * 704.8e6).epsilon(0.01));
  CHECK(round.busiest.kv_bytes == doctest::Approx(61 * 151e6).epsilon(0.001));
  // A row goes to a device with a chance of 1 - (15/16)^8 or so, an output comes back for each of 8
  // experts; 8 of the other 15 devices are on the other node.
  const double asked = 1 - std::pow(1 - 8.0 / 256, 16);
  const double row = 32 * 14336.0 * 58;
  CHECK(round.busiest.wire.network_out == doctest::Approx(row * 8 * (asked + 0.5)).epsilon(0.01));
  CHECK(round.busiest.wire.link_out == doctest::Approx(row * 7 * (asked + 0.5)).epsilon(0.01));
  CHECK(round.busiest.wire.network_in == doctest::Approx(round.busiest.wire.network_out));
}

TEST_CASE("no step is expected to be faster than its bounds") {
  for (const char* name : {"deepseek-v3", "qwen3-30b-a3b", "llama-3.1-8b", "gpt-oss-20b"}) {
    const ModelSpec spec = published(name);
    for (const std::uint32_t count : {1u, 4u}) {
      const ClusterCost cost = Cluster(spec, count, 2).cost();
      for (const double rows : {1.0, 32.0, 1000.0}) {
        CAPTURE(std::string(name));
        CAPTURE(rows);
        const Round decode = cost.round(decode_step(rows, 1000), 1);
        CHECK(decode.seconds() >= decode.bound.seconds());
        CHECK(decode.overhead_s < decode.latency_s);
        CHECK(decode.busy_s <= decode.latency_s * 1.000001);  // one step in flight
        const Round prompt = cost.round(prompt_step(rows, 1000), 1);
        CHECK(prompt.seconds() >= prompt.bound.seconds());
      }
    }
  }
}

TEST_CASE("stages work at the same time, and send hidden rows on") {
  const ModelSpec spec = published("llama-3.1-8b");
  Cluster one(spec, 1, 1), two(spec, 2, 1);
  two.placement.replicas.resize(1);
  two.placement.shards = {{0, 0, 0, 0, 15, two.devices[0]}, {0, 1, 0, 16, 31, two.devices[1]}};
  const Round whole = one.cost().round(decode_step(8, 1000), 1);
  // A single step gains nothing; two share the sequences out.
  const Round single = two.cost().round(decode_step(8, 1000), 1);
  CHECK(single.latency_s >= whole.latency_s);
  CHECK(single.bound.memory_s == doctest::Approx(whole.bound.memory_s));
  const Round both = two.cost().round(decode_step(8, 1000), 2);
  CHECK(both.latency_s == single.latency_s);
  CHECK(both.busy_s == doctest::Approx(2 * single.busy_s));
  CHECK(two.cost().round(decode_step(8, 1000), 1).busiest.wire.network_in == 8 * 4096 * 4);
}

TEST_CASE("a wire whose speed nobody knows is told") {
  const ModelSpec spec = published("qwen3-30b-a3b");
  DeviceSpeed without = fast();
  without.ceilings.network = 0;
  CHECK(Cluster(spec, 4, 2).cost(without).lacks_network());
  CHECK(!Cluster(spec, 4, 2).cost().lacks_network());
  CHECK(!Cluster(spec, 4, 4).cost(without).lacks_network());
  const ModelSpec dense = published("llama-3.1-8b");
  CHECK(!Cluster(dense, 4, 2).cost(without).lacks_network());
}

TEST_CASE("uneven experts make the step wait for the busiest device") {
  const ModelSpec spec = published("deepseek-v3");
  Cluster cluster(spec, 16, 8);
  const Round even = cluster.cost().round(decode_step(128, 4096), 1);
  for (auto& [layer, chances] : cluster.chances) chances = chances_of_skew(256, 8, 16);
  const ClusterCost cost = cluster.cost();
  const Round skewed = cost.round(decode_step(128, 4096), 1);
  CHECK(cost.imbalance() > 1.2);
  CHECK(skewed.bound.wire_s > 1.2 * even.bound.wire_s);
  CHECK(skewed.seconds() > even.seconds());
}

}  // namespace
}  // namespace troupe
