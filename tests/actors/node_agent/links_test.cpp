#include "tests/actors/node_agent/agent_under_test.h"

// Both ends of a pair hear of a version one after the other, and each lets go by itself.

namespace troupe {
namespace {

/// A member that serves version 2, which has no route to node 1 any more, and may still hold the
/// connection from before.
struct LettingGo : ServingAgent {
  LettingGo() {
    from_head(load_of(2, {kThree}));
    loaded(2);
    from_head(Activate{PlacementVersion{2}});
    settled(2);
    REQUIRE(sent<Activated>());
  }
  void retire() { from_head(Retire{PlacementVersion{2}}); }
  /// Version 3, which has routes to both, with what the head told before.
  void load_3() {
    Load load = load_of(3, {kOne, kThree});
    load.peers.clear();
    from_head(load);
    REQUIRE(last.peers<ExpectPeer>().size() == 1);
    CHECK(last.peers<ExpectPeer>()[0].id == NodeId{1});
    loaded(3);
    CHECK(!sent<Loaded>());
  }
  /// Wakes as it does until something is reported; how long that took.
  Duration until_reported(Duration limit) {
    for (const TimePoint begin = now; now < begin + limit;) {
      wait(50ms);
      if (sent<PeerUnreachable>()) return now - begin;
      if (const auto renew = sent<Renew>()) from_head(Renewed{renew->sequence});
      signs_of_life({{3, 63}});
    }
    return limit;
  }
};

TEST_CASE("a peer that lets go first, of what no version here needs, is not reported") {
  LettingGo w;
  w.peer_down(1, 61);
  CHECK(!w.sent<PeerUnreachable>());
  CHECK(w.last.nodes<PeerDown>() == std::vector{NodeId{1}});  // by older routes it may be asked yet
  CHECK(w.last.peers<ForgetPeer>().size() == 1);
  SUBCASE("and is connected again when the next one needs it") {
    w.retire();
    CHECK(w.last.peers<ForgetPeer>().empty());
    w.load_3();
    SUBCASE("it comes") {
      w.peer_up(1, 61);
      CHECK(w.sent<Loaded>());
      w.peer_down(1, 61);
    }
    SUBCASE("it does not come") { w.peer_down(1, 61); }
    CHECK(w.sent<PeerUnreachable>());
  }
  SUBCASE("one that is needed is") {
    w.peer_down(3, 63);
    CHECK(w.sent<PeerUnreachable>());
  }
}

/// The connection that was let go ends after the next one was begun.
void check_old_end(LettingGo& w) {
  w.peer_down(1, 61);
  CHECK(!w.sent<PeerUnreachable>());
  CHECK(w.last.nodes<PeerDown>().empty());
  SUBCASE("which comes about") {
    w.peer_up(1, 61);
    CHECK(w.sent<Loaded>());
    w.peer_down(1, 61);
    CHECK(w.sent<PeerUnreachable>());
  }
  SUBCASE("which fails") {
    w.peer_down(1, 61);
    CHECK(w.sent<PeerUnreachable>());
  }
  SUBCASE("unless it was the end of that one: this is found all the same") {
    const Duration took = w.until_reported(10s);
    REQUIRE(w.sent<PeerUnreachable>());
    CHECK(w.sent<PeerUnreachable>()->peer == NodeId{1});
    CHECK(w.last.peers<ForgetPeer>().size() == 1);
    CHECK(took <= limits::kBulkExpectDeadline + limits::kRenewEvery + 50ms);
  }
}

TEST_CASE("the end of what was let go may be told after the next version was begun") {
  LettingGo w;
  w.retire();
  CHECK(w.last.peers<ForgetPeer>().size() == 1);
  w.load_3();
  check_old_end(w);
}

TEST_CASE("the same of a version that brings a new token") {
  LettingGo w;
  w.from_head(load_of(3, {with_token(kOne, 10), kThree}));
  CHECK(w.last.peers<ForgetPeer>().size() == 1);
  CHECK(w.last.peers<ExpectPeer>().size() == 1);
  w.loaded(3);
  check_old_end(w);
}

TEST_CASE("so may the end of what the head had both let go, to connect again") {
  ServingAgent w;
  w.from_head(Connect{with_token(kThree, 30)});
  CHECK(w.last.peers<ConnectPeer>().size() == 1);
  w.peer_down(3, 63);
  CHECK(!w.sent<PeerUnreachable>());
  w.peer_down(3, 63);
  CHECK(w.sent<PeerUnreachable>());
}

TEST_CASE("who goes to whom is as the head says, and what it hears says what there was") {
  ServingAgent w;
  Peer three = with_token(kThree, 30);
  three.reversed = true;
  w.from_head(Connect{three});
  CHECK(w.last.peers<ConnectPeer>().empty());
  REQUIRE(w.last.peers<ExpectPeer>().size() == 1);
  w.peer_down(3, 63);  // the old one's end
  CHECK(!w.sent<PeerUnreachable>());
  SUBCASE("none came about") {
    w.peer_down(3, 63);
    REQUIRE(w.sent<PeerUnreachable>());
    CHECK(w.sent<PeerUnreachable>()->fault == LinkFault::kNobody);
    CHECK(w.last.log().size() == 1);
  }
  SUBCASE("one did") {
    w.peer_up(3, 63);
    w.peer_down(3, 63);
    REQUIRE(w.sent<PeerUnreachable>());
    CHECK(w.sent<PeerUnreachable>()->fault == LinkFault::kBroke);
    CHECK(w.last.log().empty());
  }
  SUBCASE("it has the time of a first one, not of one that breaks") {
    for (int i = 0; i < 40; ++i) {
      w.wait(50ms);
      CHECK(!w.sent<PeerUnreachable>());
      if (const auto renew = w.sent<Renew>()) w.from_head(Renewed{renew->sequence});
      w.signs_of_life({{1, 61}});
    }
  }
  SUBCASE("the other way round too") {
    Peer one = with_token(kOne, 10);
    one.reversed = true;
    w.from_head(Connect{one});
    CHECK(w.last.peers<ConnectPeer>().size() == 1);
  }
}

}  // namespace
}  // namespace troupe
