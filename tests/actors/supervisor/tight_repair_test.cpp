#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>

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

struct TightCluster : Cluster {
  TightCluster(int n, SupervisorOptions o, std::string of = "cuda")
      : Cluster(0, with(o, n)), kind(std::move(of)), own(std::move(o)) {
    for (int w = 1; w <= n; ++w) bring(w);
    settle();
    REQUIRE(s.state() == ClusterState::kReady);
    pass(2s);
  }
  void bring(int w) {
    Join join = good_join(100 + w);
    join.devices[0].kind = kind;
    add(w, join);
    settle();
  }
  /// Whether all devices have memory for what is placed and for steps of the size that the newest
  /// replicas have.
  bool fits() const {
    PlacementInput input;
    input.model = own.costs(Numerics::kBf16);
    input.engine = own.engine;
    for (const auto& [id, member] : s.members())
      input.devices.push_back({{id, 0}, kind, member.inventory.devices[0].memory_total});
    input.compute = own.compute(Numerics::kBf16, 2, step_tokens.back());
    return room_to_compute(input, *s.active()).ok();
  }
  bool told(const std::string& kind_of_event, const std::string& text) const {
    return std::ranges::any_of(s.events(), [&](const auto& e) {
      return e.kind == kind_of_event && contains(e.text, text);
    });
  }
  std::string kind;
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

TEST_CASE("what leaves an accelerator no memory to compute with is not planned, and people hear") {
  TightCluster c(2, tight(kMiB));
  REQUIRE(c.fits());
  c.kill(2);
  c.settle();
  CHECK(c.s.state() == ClusterState::kDegraded);
  CHECK(contains(c.s.message(), "node-1/0 lacks"));
  CHECK(contains(c.s.message(), "for what even steps of 8 tokens compute with"));
  CHECK(c.told("degraded", "even steps of 8 tokens"));
  CHECK(!c.s.pending());
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
