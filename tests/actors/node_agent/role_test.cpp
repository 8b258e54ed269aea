#include "tests/actors/node_agent/agent_under_test.h"

// What a worker keeps when its head is gone.

namespace troupe {
namespace {

TEST_CASE("without a head it keeps what is in force, forgets its peers, and offers what it holds") {
  ServingAgent w;
  w.from_head(load_of(2, {kOne, kThree}));
  w.down();
  CHECK(w.last.has<SuspendServing>());
  CHECK(!w.last.has<StopServing>());
  CHECK(w.last.drop() == PlacementVersion{2});
  CHECK(w.last.peers<ForgetPeer>().size() == 2);
  CHECK(w.agent.suspended());
  CHECK(w.agent.active() == PlacementVersion{1});
  CHECK(!w.agent.loading());
  w.progress.held.bytes = 77;
  w.progress.held.shards = {{0, 1}};
  w.progress.held.experts = {{1, {0, 2}}};
  w.wait(limits::kSeekBackoffMin);
  w.up();
  w.from_head(good_greeting(), Incarnation{90});
  const auto join = w.sent<Join>();
  REQUIRE(join);
  CHECK(join->held_weight_bytes == 77);
  CHECK(join->held_shards == std::vector<LayerRange>{{0, 1}});
  CHECK(join->held_experts == std::vector<HeldExperts>{{1, {0, 2}}});
  REQUIRE(join->held_role);
  CHECK(join->held_role->incarnation == kLife);
  CHECK(join->held_role->placement == load_of(1, {kOne, kThree}).placement);
  CHECK(join->held_role->lost.empty());
  const auto welcome = [&](Incarnation life) {
    w.from_head(Welcome{kSelf, life, 1200}, Incarnation{90}, life);
    CHECK(!w.agent.suspended());
    CHECK(w.agent.incarnation() == life);
  };
  SUBCASE("a head lets the life go on: any newer version is loaded, all peers are told again") {
    welcome(kLife);
    CHECK(w.last.has<ResumeServing>());
    CHECK(!w.last.has<JoinedCluster>());
    CHECK(!w.last.has<StopServing>());
    CHECK(w.agent.active() == PlacementVersion{1});
    w.from_head(load_of(2, {with_token(kOne, 8), with_token(kThree, 9)}), Incarnation{90});
    REQUIRE(w.last.load());
    CHECK(w.last.peers<ExpectPeer>().size() + w.last.peers<ConnectPeer>().size() == 2);
  }
  SUBCASE("a head begins another life: what was kept ends first") {
    welcome(Incarnation{91});
    CHECK(w.last.first<StopServing>()->incarnation == kLife);
    CHECK(w.last.position<StopServing>() < w.last.position<JoinedCluster>());
    CHECK(!w.last.has<ResumeServing>());
    CHECK(!w.agent.active());
  }
}

TEST_CASE("what is kept without a head ends when it may be wrong, or is another checkpoint's") {
  ServingAgent w;
  const auto greeted = [&](const Greeting& greeting) {
    w.down();
    w.wait(limits::kSeekBackoffMin);
    w.up();
    w.from_head(greeting, Incarnation{90});
  };
  SUBCASE("a head has said that tensors may be wrong") {
    w.from_head(Discard{{"t"}});
    w.down();
    CHECK(w.last.has<StopServing>());
    CHECK(!w.agent.suspended());
  }
  SUBCASE("a copy has changed since") {
    w.down();
    w.call([&](auto& a, auto& out) { a.copy_differs(ProofFailed{}, w.now, out); });
    CHECK(w.last.has<StopServing>());
    CHECK(w.agent.state() == State::kProving);
  }
  SUBCASE("the head has another checkpoint") {
    Greeting other = good_greeting();
    other.model_place = 7;
    greeted(other);
    CHECK(w.last.has<StopServing>());
    CHECK(w.last.has<InspectCheckpoint>());
  }
  SUBCASE("a peer was lost: the next head hears of it") {
    w.from_head(MemberLost{NodeId{3}, Incarnation{63}, "its lease ended"});
    greeted(good_greeting());
    REQUIRE(w.sent<Join>());
    CHECK(w.sent<Join>()->held_role->lost == std::vector<NodeId>{NodeId{3}});
  }
}

/// A member that keeps what it serves so long; then the head is gone.
struct LeftAgent : ServingAgent {
  explicit LeftAgent(std::uint32_t keep_for_s) {
    down();
    wait(limits::kSeekBackoffMin);
    welcomed(keep_for_s);
    down();
    REQUIRE(agent.suspended());
    gone = now;
  }
  void welcomed(std::uint32_t keep_for_s) {
    greeted();
    from_head(Welcome{kSelf, kLife, 1200, keep_for_s}, Incarnation{90});
    REQUIRE(agent.state() == State::kMember);
  }
  void greeted() {
    up();
    from_head(good_greeting(), Incarnation{90});
    REQUIRE(agent.state() == State::kJoining);
  }
  /// Seeks a head that is not there, whenever it wants to, until then.
  void seek_until(TimePoint end) {
    while (now < end) {
      wait(std::min(*last.effects.wake(), end) - now);
      let_go = let_go || last.has<LetWeightsGo>();
      if (agent.state() == State::kConnecting) down();
    }
  }
  TimePoint gone;
  bool let_go = false;
};

TEST_CASE("without a head for too long all is let go, and the head is sought on") {
  for (const std::uint32_t keep_for_s : {0u, 3u, 60u}) {
    LeftAgent w(keep_for_s);
    w.seek_until(w.gone + std::chrono::seconds(keep_for_s) - 1ms);
    CHECK(!w.let_go);
    CHECK(w.agent.suspended());
    w.progress.held.bytes = 77;
    w.seek_until(w.gone + std::chrono::seconds(keep_for_s) + 1ms);
    CHECK(w.let_go);
    CHECK(!w.agent.suspended());
    CHECK(!w.agent.active());
    w.progress.held = {};
    w.let_go = false;
    w.seek_until(w.gone + 600s);
    CHECK(!w.let_go);  // it is gone
    REQUIRE(w.agent.state() == State::kSeeking);
    w.wait(*w.last.effects.wake() - w.now);
    w.greeted();
    CHECK(w.sent<Join>()->held_weight_bytes == 0);
    CHECK(!w.sent<Join>()->held_role);
    CHECK(w.sent<Join>()->held_id == kSelf);
    w.from_head(Welcome{kSelf, Incarnation{91}, 1200, 60}, Incarnation{90}, Incarnation{91});
    CHECK(w.last.has<JoinedCluster>());
  }
}

TEST_CASE("what is let go is what was held, and after what serves with it") {
  LeftAgent w(3);
  w.seek_until(w.gone + 3s - 1ms);
  w.wait(1ms);
  CHECK(w.last.first<StopServing>()->incarnation == kLife);
  CHECK(w.last.position<StopServing>() < w.last.position<LetWeightsGo>());
  CHECK(contains(w.last.log().back(), "No head has come for 3 s (--keep-for)"));
}

TEST_CASE("while a head may be saying that it goes on, nothing is let go") {
  LeftAgent w(1);
  w.wait(limits::kSeekBackoffMin);
  w.greeted();
  w.wait(1s);
  CHECK(!w.last.has<LetWeightsGo>());
  REQUIRE(w.agent.suspended());
  SUBCASE("it does, and the next loss has all its time") {
    w.from_head(Welcome{kSelf, kLife, 1200, 1}, Incarnation{90});
    CHECK(w.last.has<ResumeServing>());
    w.wait(1100ms);
    CHECK(!w.last.has<LetWeightsGo>());
    w.down();
    w.gone = w.now;
    w.seek_until(w.gone + 1s - 1ms);
    CHECK(!w.let_go);
    w.seek_until(w.gone + 1s);
    CHECK(w.let_go);
  }
  SUBCASE("it does not") {
    w.from_head(Refused{ErrorCode::kUnavailable, "The cluster is stopping."}, Incarnation{90});
    w.seek_until(w.now + 1ms);
    CHECK(w.let_go);
  }
}

}  // namespace
}  // namespace troupe
