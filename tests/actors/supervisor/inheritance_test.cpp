#include <doctest/doctest.h>

#include "tests/actors/supervisor/cluster_fixture.h"

// What workers have kept of an earlier head goes on under this one.

namespace troupe {
namespace {

using namespace testing;

constexpr Incarnation kNextHead{5000};

SupervisorOptions of_next_head(int devices) {
  auto o = options();
  o.incarnation = kNextHead;
  o.known.numerics = Numerics::kBf16;
  o.engine.min_devices = devices;
  return o;
}

/// What the workers of a cluster say when its head is gone.
struct Before {
  explicit Before(int workers) : cluster(workers, of_first_head()) {
    settled(cluster);
    engine = cluster.s.options().engine;
    engine.numerics = Numerics::kBf16;
  }
  static SupervisorOptions of_first_head() {
    auto o = options();
    o.engine.numerics = Numerics::kBf16;
    return o;
  }
  static void settled(Cluster& c) { c.pass(2s); }
  Join join_of(int w) const {
    Join join = good_join(100 + w);
    join.held_cluster = "c1";
    join.held_id = cluster.workers.at(w).node;
    join.held_role = HeldRole{cluster.workers.at(w).incarnation, *cluster.s.active(), engine, {}};
    return join;
  }
  Cluster cluster;
  EngineOptions engine;
};

/// The next head.
struct After : Cluster {
  explicit After(int devices) : Cluster(0, with_numerics(of_next_head(devices))) {}
  static SupervisorOptions with_numerics(SupervisorOptions o) {
    o.engine.numerics = Numerics::kBf16;
    return o;
  }
};

TEST_CASE("lives go on with their replicas, and nothing is loaded") {
  Before before(3);
  const Placement had = *before.cluster.s.active();
  After after(3);
  for (int w = 1; w <= 3; ++w) {
    CHECK(after.loads == 0);  // it waits for all of them
    const auto address = after.add(w, before.join_of(w));
    CHECK(address == before.cluster.workers.at(w));
  }
  CHECK(!after.sent<MemberLost>());
  after.settle();
  REQUIRE(after.s.active());
  CHECK(after.s.active()->replicas == had.replicas);
  CHECK(after.s.active()->shards == had.shards);
  CHECK(after.s.active()->experts == had.experts);
  CHECK(after.s.active()->version > had.version);
  CHECK(after.s.state() == ClusterState::kReady);
  CHECK(after.routes.replicas.size() == had.replicas.size());
}

TEST_CASE("who does not come back is lost, and what spans it with it") {
  Before before(3);
  After after(2);
  after.add(1, before.join_of(1));
  after.add(2, before.join_of(2));
  CHECK(after.loads == 0);
  after.pass(1s);
  CHECK(!after.s.active());
  after.pass(1s);
  REQUIRE(after.s.active());
  CHECK(after.s.state() == ClusterState::kReady);
  for (const auto& replica : after.s.active()->replicas) CHECK(replica.node != NodeId{3});
  // It comes late: a new life.
  CHECK(after.add(3, before.join_of(3)).incarnation > kNextHead);
}

TEST_CASE("a life goes on once, and only as it was kept") {
  Before before(2);
  After after(2);
  Join join = before.join_of(1);
  SUBCASE("of another cluster") { join.held_cluster = "c2"; }
  SUBCASE("of no head before this one") { join.held_role->incarnation = kNextHead; }
  SUBCASE("of no life") { join.held_role->incarnation = {}; }
  SUBCASE("with other flags") { join.held_role->engine.block_size *= 2; }
  SUBCASE("with other numerics") { join.held_role->placement.numerics = Numerics::kReference; }
  SUBCASE("with a layer that the model lacks") {
    join.held_role->placement.shards.back().last_layer = 99;
  }
  SUBCASE("with an expert that the model lacks") {
    join.held_role->placement.experts.front().slots.front().expert = 99;
  }
  SUBCASE("with a shard of no replica") { join.held_role->placement.shards.back().replica = 99; }
  SUBCASE("with two replicas of one number") {
    join.held_role->placement.replicas.push_back(join.held_role->placement.replicas.front());
  }
  SUBCASE("with a replica on a node that has no shard of it") {
    join.held_role->placement.replicas.front().node = NodeId{77};
  }
  SUBCASE("with a layer that nobody has") {
    auto& shards = join.held_role->placement.shards;
    shards.back().last_layer = 0;
  }
  SUBCASE("with steps that cannot be") { join.held_role->engine.max_num_batched_tokens = 1 << 30; }
  SUBCASE("without an id") { join.held_id = {}; }
  SUBCASE("with the life of another") {
    after.add(2, before.join_of(2));
    join.held_role->incarnation = before.cluster.workers.at(2).incarnation;
  }
  SUBCASE("without a part in it") { join.held_id = NodeId{9}; }
  SUBCASE("with a version that cannot be") { join.held_role->placement.version = {}; }
  SUBCASE("with another placement than the first one") {
    after.add(2, before.join_of(2));
    join.held_role->placement.experts.front().slots.pop_back();
  }
  SUBCASE("with an older placement than the first one") {
    Join newer = before.join_of(2);
    newer.held_role->placement.version.value += 1;
    after.add(2, newer);
  }
  SUBCASE("lost, as a peer has heard") {
    Join peer = before.join_of(2);
    peer.held_role->lost = {join.held_id};
    after.add(2, peer);
  }
  SUBCASE("of a peer that says that one is lost who goes on") {
    after.add(2, before.join_of(2));
    join.held_role->lost = {before.cluster.workers.at(2).node};
  }
  SUBCASE("twice") {
    after.add(1, join);
    after.kill(1);
  }
  CHECK(after.add(1, join).incarnation > kNextHead);
  after.pass(3s);
}

TEST_CASE("the newest placement counts, whoever comes first") {
  Before before(3);
  After after(3);
  after.add(1, before.join_of(1));
  for (int w = 2; w <= 3; ++w) {
    Join newer = before.join_of(w);
    newer.held_role->placement.version.value += 1;
    CHECK(after.add(w, newer) == before.cluster.workers.at(w));
    if (w == 2) after.kill(1);  // its session is closed
  }
  CHECK(after.s.members().size() == 2);
  CHECK(after.add(1, before.join_of(1)).incarnation > kNextHead);
  after.pass(3s);
  CHECK(after.s.state() == ClusterState::kReady);
}

TEST_CASE("what is inherited lets go of what came before it, and forgets what may be wrong") {
  Before before(2);
  After after(2);
  after.add(1, before.join_of(1));
  SUBCASE("all of it lives") {
    after.add(2, before.join_of(2));
    CHECK(after.count_sent<Retire>() == 2);
    CHECK(!after.sent<ForgetPrefixes>());
  }
  SUBCASE("a device has failed meanwhile") {
    after.failed.insert(1);
    after.pass(200ms);
    after.add(2, before.join_of(2));
    CHECK(after.sent<ForgetPrefixes>());
  }
  after.settle();
  after.pass(1s);
}

TEST_CASE("a head that follows none waits for nobody") {
  Cluster c(0);
  c.add(1);
  c.settle();
  CHECK(c.s.state() == ClusterState::kReady);
}

}  // namespace
}  // namespace troupe
