#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "model/placement/compute_room.h"
#include "tests/actors/supervisor/cluster_fixture.h"

// Repairs where the memory that is left has to hold what steps compute with.

namespace troupe {
namespace {

using namespace testing;

/// Two layers and four experts of 14 MiB each, of which a device of 64 MiB holds all beside a
/// shard: 5.5 MiB are left. Steps take so much a token.
SupervisorOptions tight(std::uint64_t token_bytes) {
  auto o = options();
  o.engine.max_num_batched_tokens = 2048;
  o.costs = [](Numerics) {
    ModelCosts m;
    m.layers = {{kMiB, false}, {kMiB, true}};
    m.num_experts = 4;
    m.expert_bytes = 14 * kMiB;
    m.kv_bytes_per_token_layer = 8;
    return m;
  };
  o.compute = [token_bytes](Numerics, int, std::int32_t tokens) {
    const std::uint64_t bytes = static_cast<std::uint64_t>(tokens) * token_bytes;
    return ComputeCosts{tokens, 2, [bytes](std::int32_t, std::int32_t) { return bytes; },
                        [](std::int64_t) { return std::uint64_t{0}; }};
  };
  return o;
}

using Device = std::pair<std::string, std::uint64_t>;  // its kind and memory

struct TightCluster : Cluster {
  TightCluster(int n, SupervisorOptions o, const std::string& of = "cuda")
      : TightCluster(o, std::vector<Device>(static_cast<std::size_t>(n), {of, 64 * kMiB})) {}
  TightCluster(SupervisorOptions o, std::vector<Device> of)
      : Cluster(0, with(o, static_cast<int>(of.size()))), own(std::move(o)) {
    for (const Device& device : of) bring(static_cast<int>(workers.size()) + 1, device);
    settle();
    REQUIRE(s.state() == ClusterState::kReady);
    pass(2s);
  }
  void bring(int w, const Device& device = {"cuda", 64 * kMiB}) {
    Join join = good_join(100 + w);
    join.devices[0].kind = device.first;
    join.devices[0].memory_total = device.second;
    add(w, join);
    settle();
  }
  /// Whether all devices, or all accelerators, have memory for what is placed and for steps of the
  /// size that the newest replicas have.
  bool fits(bool cpus = true) const {
    PlacementInput input;
    input.model = own.costs(Numerics::kBf16);
    input.engine = own.engine;
    for (const auto& [id, member] : s.members())
      input.devices.push_back(
          {{id, 0}, member.inventory.devices[0].kind, member.inventory.devices[0].memory_total});
    input.compute = own.compute(Numerics::kBf16, 2, step_tokens.back());
    return room_to_compute(input, *s.active(), cpus).ok();
  }
  bool told(const std::string& kind_of_event, const std::string& text) const {
    return std::ranges::any_of(s.events(), [&](const auto& e) {
      return e.kind == kind_of_event && contains(e.text, text);
    });
  }
  SupervisorOptions own;
};

TEST_CASE("a repair leaves what steps compute with, and makes them as small as that takes") {
  for (const std::string kind : {"cuda", "cpu"}) {
    auto o = tight(20 * 1024);
    o.engine.data_parallel_size = 1;
    TightCluster c(2, o, kind);
    REQUIRE(c.step_tokens.back() == 2048);
    REQUIRE(c.fits());
    c.kill(static_cast<int>(c.s.active()->replicas[0].node.value));
    c.settle();
    CHECK(c.s.state() == ClusterState::kReady);
    CHECK(c.fits());
    CHECK(c.step_tokens.back() == 256);
    CHECK(c.told("placement", "steps of 256 tokens"));
    c.pass(5s);
    CHECK(c.step_tokens.back() == 256);  // of a version, all replicas have the same
  }
}

TEST_CASE("replicas that live begin again where lost experts find no room beside their steps") {
  TightCluster c(2, tight(20 * 1024));
  REQUIRE(c.s.active()->replicas.size() == 2);
  const std::uint32_t before = c.s.active()->replicas[0].id;
  REQUIRE(c.s.active()->replicas[0].node == NodeId{1});
  c.kill(2);
  c.settle();
  CHECK(c.s.state() == ClusterState::kReady);
  CHECK(c.fits());
  CHECK(c.step_tokens.back() == 256);
  REQUIRE(c.s.active()->replicas.size() == 1);
  CHECK(c.s.active()->replicas[0].id != before);  // the old one has larger steps
  CHECK(c.told("placement", "begin again"));
}

TEST_CASE("only as many replicas begin again as it takes") {
  TightCluster c(4, tight(20 * 1024));
  const auto before = c.s.active()->replicas;
  REQUIRE(before.size() == 4);
  REQUIRE(c.step_tokens.back() == 2048);
  c.kill(4);  // its expert has room beside one shard less
  c.settle();
  c.pass(2s);
  CHECK(c.s.state() == ClusterState::kReady);
  CHECK(c.fits());
  CHECK(c.step_tokens.back() == 2048);
  CHECK(c.told("placement", "1 of the 3 replicas begin again"));
  REQUIRE(c.s.active()->replicas.size() == 2);
  for (const auto& replica : c.s.active()->replicas)
    CHECK(std::ranges::find(before, replica) != before.end());  // with its cache
}

TEST_CASE("beside a processor that lacks memory an accelerator keeps what its steps take") {
  auto o = tight(0);
  o.compute = [](Numerics, int, std::int32_t tokens) {
    return ComputeCosts{tokens, 2, [](std::int32_t, std::int32_t) { return 22 * kMiB; },
                        [](std::int64_t) { return std::uint64_t{0}; }};
  };
  // The processor has two experts and room for a third, but for what steps take; the accelerators
  // have one each, and room for another if steps took nothing.
  TightCluster c(o, {{"cpu", 64 * kMiB}, {"cuda", 40 * kMiB}, {"cuda", 40 * kMiB}});
  REQUIRE(c.fits());
  const auto before = c.s.active()->replicas;
  REQUIRE(before.size() == 3);
  REQUIRE(c.slots_on(NodeId{1}) == 2);
  c.kill(3);
  c.settle();
  CHECK(c.s.state() == ClusterState::kReady);
  CHECK(c.fits(false));
  CHECK(c.slots_on(NodeId{1}) == 3);
  CHECK(c.told("placement",
               "may take more memory than is planned with; the cluster goes on: node-1/0 lacks"));
  CHECK(!c.told("placement", "begin again"));
  REQUIRE(c.s.active()->replicas.size() == 2);
  for (const auto& replica : c.s.active()->replicas)
    CHECK(std::ranges::find(before, replica) != before.end());
}

TEST_CASE("what leaves an accelerator no memory to compute with is not planned, and people hear") {
  auto o = tight(kMiB);
  int asked = 0;
  o.compute = [&asked, costs = o.compute](Numerics n, int threads, std::int32_t tokens) {
    ++asked;
    return costs(n, threads, tokens);
  };
  TightCluster c(2, o);
  REQUIRE(c.fits());
  c.kill(2);
  c.settle();
  CHECK(c.s.state() == ClusterState::kDegraded);
  CHECK(contains(c.s.message(), "node-1/0 lacks"));
  CHECK(contains(c.s.message(), "for what even steps of 8 tokens compute with"));
  CHECK(c.told("degraded", "even steps of 8 tokens"));
  CHECK(!c.s.pending());
  const int plans = asked;
  c.pass(2s);
  CHECK(asked == plans);  // not again and again
  CHECK(contains(c.s.message(), "node-1/0 lacks"));
  c.bring(3);
  c.pass(2s);
  CHECK(c.s.state() == ClusterState::kReady);
  CHECK(c.fits());
}

TEST_CASE("a processor's steps may take more of the host than is planned with; people hear it") {
  TightCluster c(2, tight(kMiB), "cpu");
  c.kill(2);
  c.settle();
  CHECK(c.s.state() == ClusterState::kReady);
  CHECK(c.told("placement", "may take more memory than is planned with"));
  CHECK(c.told("placement", "node-1/0 lacks"));
}

TEST_CASE("copies beyond the last are no reason to leave an accelerator nothing to compute with") {
  auto o = tight(20 * 1024);
  o.engine.redundant_experts = 4;
  o.engine.data_parallel_size = 1;
  TightCluster c(3, o);
  REQUIRE(c.fits());
  REQUIRE(c.step_tokens.back() == 2048);
  c.kill(c.s.active()->replicas[0].node == NodeId{3} ? 2 : 3);
  c.settle();
  c.pass(10s);
  CHECK(c.s.state() == ClusterState::kReady);
  CHECK(c.fits());
  CHECK(c.told("plan", "steps of 2048 tokens"));
}

}  // namespace
}  // namespace troupe
