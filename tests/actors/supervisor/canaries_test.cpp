#include <doctest/doctest.h>

#include "tests/actors/supervisor/proving_cluster.h"

// Who is wrong when two replicas compute otherwise.

namespace troupe {

using namespace testing;

TEST_CASE("a replica serves once it has given the canary") {
  ProvingCluster c;
  c.canary.reset();
  c.all_loaded();
  REQUIRE(c.activated);
  const auto runs = c.sends<RunCanary>();
  REQUIRE(runs.size() == 3);
  CHECK(runs[0].prompt.size() + runs[0].generate == 64);
  CHECK(c.routes.replicas.empty());
  CHECK(c.s.state() != ClusterState::kReady);
  const auto answer = [&](std::size_t i, KnownCanary given) {
    const auto node = c.s.active()->replicas.at(i).node;
    const Address from{
        node, c.s.members().at(node).incarnation, {ActorKind::kReplica, runs[i].replica}};
    c.from(from, CanaryResult{runs[i].replica, runs[i].run, given.tokens, given.digests, {}});
    c.note();
  };
  answer(0, {{7}, {1, 2, 3, 4}});
  CHECK(c.routes.replicas.size() == 1);
  CHECK(c.s.state() == ClusterState::kReady);
  answer(1, {{7}, {1, 2, 3, 4}});
  CHECK(c.routes.replicas.size() == 2);
}

TEST_CASE("a replica that computes otherwise, twice, is taken out, and its shard is named") {
  ProvingCluster c;
  c.all_loaded();
  REQUIRE(c.routes.replicas.size() == 3);
  const ReplicaPlacement wrong = c.s.active()->replicas.at(1);
  const Address from{
      wrong.node, c.s.members().at(wrong.node).incarnation, {ActorKind::kReplica, wrong.id}};
  c.canary.reset();
  c.now += 60s;
  // Renewed before the leases are looked at: time has passed for nobody.
  c.now -= 60s;
  for (int i = 0; i < 61; ++i) {
    c.now += 1s;
    c.renew();
  }
  std::size_t forgotten = 0;
  const auto differs = [&] {
    c.wait(10ms);
    for (const auto& send : all<Send>(c.last))
      if (const auto* run = std::get_if<RunCanary>(send.message.get()); run && send.to == from) {
        c.from(from, CanaryResult{wrong.id, run->run, {7}, {1, 9, 9, 9}, {}});
        forgotten += c.sends<ForgetPrefixes>().size();
        c.note();
        return true;
      }
    return false;
  };
  REQUIRE(differs());
  CHECK(c.s.members().contains(wrong.node));
  REQUIRE(differs());
  CHECK_FALSE(c.s.members().contains(wrong.node));
  CHECK(forgotten > 0);
  CHECK(contains(c.newest("proof_failed"), "feed-forward part of layer 0"));
  CHECK(contains(c.newest("proof_failed"), "s ago"));
}

// Two layers, the second with experts: four boundaries, of the prompt and of one token.
static KnownCanary right() { return {{7, 8}, {1, 2, 3, 4, 5, 6, 7, 8}}; }

/// Of an earlier life of the head, with a context for no more than one token and two to come.
static KnownCanary known(KnownCanary given, bool settled) {
  given.settled = settled;
  given.prompt = 1;
  return given;
}

TEST_CASE("a canary whose step fails blames nobody, whatever the error is") {
  SupervisorOptions o = options();
  o.engine.pipeline_parallel_size = 2;
  ProvingCluster c(6, o);
  c.canary.reset();
  c.all_loaded();
  REQUIRE(c.s.active()->replicas.size() >= 3);
  for (std::size_t i = 0; i < 2; ++i) REQUIRE(c.gives(i, right()));
  // Bytes that do not fit are what the stage before sent.
  for (const Error& why :
       {corrupt("the hidden rows do not match"), invalid_argument("no hidden states came"),
        internal_error("no digests"), resource_exhausted("no memory"), unavailable("a peer")})
    for (int i = 0; i < 2; ++i) {
      c.renew();
      c.wait(190ms);
      REQUIRE(c.answers(2, {0, 0, {}, {}, why}));
    }
  CHECK(c.newest("proof_failed") == "");
  for (std::size_t w = 0; w < 6; ++w) CHECK(c.member(w));
  CHECK(c.routes.replicas.size() == 2);  // and it has proven nothing
  CHECK(contains(c.newest("proofs"), "does not serve yet"));
  CHECK(contains(c.newest("proofs"), "a peer"));
  for (int i = 0; i < 10; ++i) {
    c.renew();
    c.wait(499ms);
  }
  REQUIRE(c.gives(2, right()));
  CHECK(c.routes.replicas.size() == 3);
}

TEST_CASE("a replica that has no room for a canary serves without one") {
  ProvingCluster c;
  c.canary.reset();
  c.all_loaded();
  REQUIRE(c.answers(0, {0, 0, {}, {}, resource_exhausted("no room"), true}));
  CHECK(c.routes.replicas.size() == 1);
  CHECK(contains(c.newest("proofs"), "serves without a canary: no room"));
}

TEST_CASE("a wrong expert is not blamed on the layers that see the token it chose") {
  ProvingCluster c;
  c.canary.reset();
  c.all_loaded();
  for (std::size_t i = 0; i < 2; ++i) REQUIRE(c.gives(i, right()));
  const KnownCanary wrong{{9, 8}, {1, 2, 3, 40, 50, 60, 70, 80}};
  REQUIRE(c.gives(2, wrong));
  REQUIRE(c.gives(2, wrong));
  CHECK(contains(c.newest("proof_failed"), "the experts of layer 1"));
  for (std::size_t w = 0; w < 3; ++w) CHECK(c.member(w));
  CHECK(c.routes.replicas.size() == 2);
}

TEST_CASE("what a stage of several ranks computes otherwise takes out all of them") {
  SupervisorOptions o = options();
  o.engine.tensor_parallel_size = 2;
  ProvingCluster c(6, o);
  c.canary.reset();
  c.all_loaded();
  for (std::size_t i = 0; i < 2; ++i) REQUIRE(c.gives(i, right()));
  REQUIRE(c.s.active()->shards.at(4).device.node == NodeId{5});
  REQUIRE(c.s.active()->shards.at(5).device.node == NodeId{6});
  SUBCASE("in a layer") {
    const KnownCanary wrong{{9, 8}, {1, 2, 30, 40, 50, 60, 70, 80}};
    REQUIRE(c.gives(2, wrong));
    for (std::size_t w = 0; w < 6; ++w) CHECK(c.member(w));  // it is asked once more
    REQUIRE(c.gives(2, wrong));
    CHECK(contains(c.newest("proof_failed"),
                   "the attention of layer 1 (asked by node-5/0, node-6/0)"));
  }
  SUBCASE("in the logits") {
    REQUIRE(c.gives(2, {{9, 8}, {1, 2, 3, 4, 50, 60, 70, 80}}));
    REQUIRE(c.gives(2, {{9, 8}, {1, 2, 3, 4, 50, 60, 70, 80}}));
    CHECK(contains(c.newest("proof_failed"), "its last part"));
  }
  for (std::size_t w = 0; w < 4; ++w) CHECK(c.member(w));
  CHECK_FALSE(c.member(4));
  CHECK_FALSE(c.member(5));
  CHECK(c.routes.replicas.size() == 2);
  // Nothing was planned for one of them while the other was about to go.
  for (const Load& load : c.sends<Load>())
    for (const auto& shard : load.placement.shards) CHECK(shard.device.node.value <= 4);
}

TEST_CASE("of a pipeline only the ranks of the stage that differs first are taken out") {
  SupervisorOptions o = options();
  o.engine.tensor_parallel_size = 2;
  o.engine.pipeline_parallel_size = 2;
  ProvingCluster c(12, o);
  c.canary.reset();
  c.all_loaded();
  REQUIRE(c.s.active()->replicas.size() >= 3);
  for (std::size_t i = 0; i < 2; ++i) REQUIRE(c.gives(i, right()));
  std::set<NodeId> first, second;
  for (const auto& shard : c.s.active()->shards)
    if (shard.replica == c.s.active()->replicas[2].id)
      (shard.stage == 0 ? first : second).insert(shard.device.node);
  REQUIRE(first.size() == 2);
  REQUIRE(second.size() == 2);
  const KnownCanary wrong{{9, 8}, {1, 20, 30, 40, 50, 60, 70, 80}};
  for (int i = 0; i < 2; ++i) REQUIRE(c.gives(2, wrong));
  for (std::size_t w = 0; w < 12; ++w) CHECK(c.member(w) != first.contains(c.at[w].node));
}

TEST_CASE("one replica against one: the newcomer does not serve, and nobody is taken out") {
  ProvingCluster c(2);
  c.canary.reset();
  c.all_loaded();
  REQUIRE(c.gives(0, {{9, 8}, {9, 2, 3, 4, 5, 6, 7, 8}}));
  REQUIRE(c.gives(1, right()));
  REQUIRE(c.gives(1, right()));
  CHECK(contains(c.newest("proof_failed"), "Nobody else could decide"));
  CHECK(c.member(0));
  CHECK(c.member(1));
  CHECK(c.routes.replicas.size() == 1);
}

TEST_CASE("what the only replica gives for a minute is known instead of what it gave once") {
  ProvingCluster c(2);
  c.canary.reset();
  c.all_loaded();
  REQUIRE(c.gives(0, {{9, 8}, {9, 2, 3, 4, 5, 6, 7, 8}}));
  const auto serves = [&] { return !c.routes.replicas.empty(); };
  REQUIRE(serves());
  bool served_early = false;
  for (std::uint64_t second = 1; second < 150; ++second) {
    c.wait(1s);
    c.note();
    for (std::size_t w = 0; w < 2; ++w) {
      c.from(c.at[w], Renew{second, {{}}, {}, {}, second - 1});
      c.note();
    }
    (void)c.gives(0, right());
    if (second < 120 && c.kept_canary->says(right())) served_early = true;
  }
  CHECK_FALSE(served_early);  // a minute until it is asked again, and one more
  CHECK(c.kept_canary->says(right()));
  CHECK(serves());
}

TEST_CASE("what the canary gave while something was wrong counts no more once that is found") {
  const KnownCanary wrong{{9, 8}, {1, 2, 3, 40, 50, 60, 70, 80}};
  ProvingCluster c(2);
  c.canary.reset();
  c.all_loaded();
  REQUIRE(c.gives(0, wrong));
  CHECK(c.kept_canary->says(wrong));
  c.wait(1s);
  std::uint32_t last_good_s = 5;
  SUBCASE("it was known first meanwhile") {}
  SUBCASE("it was known before") { last_good_s = 0; }
  c.from(c.at[1], ProofFailed{"t", "a bit flipped", last_good_s});
  c.note();
  CHECK_FALSE(c.member(1));
  if (last_good_s == 0) {
    CHECK_FALSE(c.gives(0, right()));
    return;
  }
  REQUIRE(c.gives(0, right()));
  REQUIRE(c.gives(0, right()));
  CHECK(c.kept_canary->says(right()));
  CHECK(c.member(0));
  CHECK(c.routes.replicas.size() == 1);
}

TEST_CASE("a canary is settled by two living nodes, and only then is who differs wrong") {
  const KnownCanary wrong{{9, 8}, {9, 2, 3, 4, 5, 6, 7, 8}};
  SupervisorOptions o = options();
  o.known.numerics = Numerics::kReference;
  o.known.canary = known(wrong, false);
  o.engine.max_model_len = 3;
  SUBCASE("one gave it before the head's restart: that and one are not two") {
    ProvingCluster c(3, o);
    c.canary.reset();
    c.all_loaded();
    REQUIRE(c.gives(0, wrong));
    CHECK_FALSE(c.kept_canary);
    for (std::size_t i = 1; i < 3; ++i) {
      REQUIRE(c.gives(i, right()));
      REQUIRE(c.gives(i, right()));
    }
    CHECK(c.kept_canary->says(right()));
    CHECK(c.kept_canary->settled);
    for (std::size_t w = 0; w < 3; ++w) CHECK(c.member(w));
    REQUIRE(c.gives(0, wrong));
    REQUIRE(c.gives(0, wrong));
    CHECK_FALSE(c.member(0));
  }
  SUBCASE("two gave it: one that differs from a living one goes") {
    o.known.canary = known(right(), true);
    ProvingCluster c(3, o);
    c.canary.reset();
    c.all_loaded();
    REQUIRE(c.gives(0, right()));
    REQUIRE(c.gives(1, wrong));
    REQUIRE(c.gives(1, wrong));
    CHECK_FALSE(c.member(1));
    CHECK(c.member(0));
  }
  SUBCASE("two gave it, and nobody who lives does: nobody goes, and two make theirs known") {
    o.known.canary = known(right(), true);
    ProvingCluster c(3, o);
    c.canary.reset();
    c.all_loaded();
    for (std::size_t i = 0; i < 2; ++i) {
      REQUIRE(c.gives(i, wrong));
      REQUIRE(c.gives(i, wrong));
    }
    for (std::size_t w = 0; w < 3; ++w) CHECK(c.member(w));
    CHECK(c.kept_canary->says(wrong));
  }
  SUBCASE("it was asked something else: that is nothing known") {
    o.known.canary = known(right(), true);
    SUBCASE("a longer prompt") { o.known.canary->prompt = 7; }
    SUBCASE("for more tokens") { o.engine.max_model_len = 4; }
    ProvingCluster c(3, o);
    c.canary.reset();
    c.all_loaded();
    REQUIRE(c.gives(0, wrong));
    CHECK(c.routes.replicas.size() == 1);
  }
}

TEST_CASE("a node that is gone has no voice: one that starts again does not count twice") {
  const KnownCanary wrong{{9, 8}, {9, 2, 3, 4, 5, 6, 7, 8}};
  ProvingCluster c;
  c.canary.reset();
  c.all_loaded();
  REQUIRE(c.gives(0, right()));
  REQUIRE(c.gives(1, wrong));
  REQUIRE(c.gives(1, wrong));
  c.from(c.at[1], Leave{"it ends"});
  REQUIRE(c.s.active()->replicas.size() == 2);
  REQUIRE(c.gives(1, wrong));
  REQUIRE(c.gives(1, wrong));
  CHECK(c.kept_canary->says(right()));
  CHECK(c.member(0));
  CHECK(c.routes.replicas.size() == 1);
}

}  // namespace troupe
