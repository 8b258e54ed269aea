#include "tests/actors/node_agent/agent_under_test.h"

namespace troupe {
namespace {

TEST_CASE("a load is this node's part, and done when weights and peers are there") {
  AgentUnderTest w;
  w.become_member();
  Load load = load_of(1, {kOne, kThree});
  load.placement.tier = {{1, {{1, {kSelf, 0}}, {0, {NodeId{3}, 0}}}}};
  w.from_head(load);
  REQUIRE(w.last.load());
  CHECK(w.last.load()->shards.size() == 1);
  CHECK(w.last.load()->replicas.size() == 1);
  REQUIRE(w.last.load()->experts.size() == 1);
  CHECK(w.last.load()->experts[0].slots.size() == 2);
  REQUIRE(w.last.load()->tier.size() == 1);
  REQUIRE(w.last.load()->tier[0].slots.size() == 1);
  CHECK(w.last.load()->tier[0].slots[0].expert == 1);
  CHECK(w.last.load()->model_path == "/models/m");
  CHECK(w.last.load()->checkpoint_hash == "abc");
  REQUIRE(w.last.peers<ConnectPeer>().size() == 1);  // the lower id goes to the other
  CHECK(w.last.peers<ConnectPeer>()[0].id == NodeId{3});
  REQUIRE(w.last.peers<ExpectPeer>().size() == 1);
  CHECK(w.last.peers<ExpectPeer>()[0].id == NodeId{1});

  w.peer_up(1, 61);
  CHECK(w.last.nodes<PeerUp>() == std::vector{NodeId{1}});
  w.loaded(1);
  CHECK(!w.sent<Loaded>());
  w.peer_up(3, 62);  // an older life
  CHECK(!w.sent<Loaded>());
  w.from_head(Activate{PlacementVersion{1}});
  CHECK(!w.last.activate());
  CHECK(w.sent<Undeliverable>());
  w.peer_up(3, 63);
  REQUIRE(w.sent<Loaded>());
  CHECK(!w.agent.loading());
  w.from_head(Activate{PlacementVersion{1}});
  CHECK(w.last.activate() == PlacementVersion{1});
  CHECK(w.agent.active() == PlacementVersion{1});
  CHECK(!w.sent<Activated>());
  w.settled(1);
  REQUIRE(w.sent<Activated>());
  CHECK(w.sent<Activated>()->version == PlacementVersion{1});
  w.from_head(Retire{PlacementVersion{1}});
  CHECK(w.last.retire() == PlacementVersion{1});
}

TEST_CASE("the active version serves on while the next is loaded") {
  ServingAgent w;
  w.from_head(load_of(2, {kOne, kThree}));
  REQUIRE(w.last.load());
  CHECK(!w.last.has<StopServing>());
  CHECK(!w.last.drop());
  CHECK(w.last.peers<ForgetPeer>().empty());
  CHECK(w.last.peers<ConnectPeer>().empty());
  CHECK(w.last.peers<ExpectPeer>().empty());
  CHECK(w.agent.active() == PlacementVersion{1});
  w.loaded(2);
  REQUIRE(w.sent<Loaded>());
  CHECK(w.sent<Loaded>()->version == PlacementVersion{2});
  w.from_head(Retire{PlacementVersion{2}});  // not active yet
  CHECK(!w.last.retire());
  CHECK(w.sent<Undeliverable>());
  w.from_head(Activate{PlacementVersion{2}});
  CHECK(w.last.activate() == PlacementVersion{2});
  w.settled(1);  // late news
  CHECK(!w.sent<Activated>());
  w.settled(2);
  CHECK(w.sent<Activated>());
  w.from_head(Retire{PlacementVersion{1}});
  CHECK(!w.last.retire());
  w.from_head(Retire{PlacementVersion{2}});
  CHECK(w.last.retire() == PlacementVersion{2});
}

TEST_CASE("a newer load takes the place of a pending one") {
  ServingAgent w;
  w.from_head(load_of(2, {kOne, kThree}));
  SUBCASE("that is being read") {}
  SUBCASE("that is loaded") {
    w.loaded(2);
    CHECK(w.sent<Loaded>());
  }
  w.from_head(load_of(3, {kOne, kThree}));
  CHECK(w.last.drop() == PlacementVersion{2});
  REQUIRE(w.last.load());
  CHECK(w.last.load()->version == PlacementVersion{3});
  w.from_head(load_of(2, {kOne, kThree}));  // again
  CHECK(!w.last.load());
  w.loaded(2);
  CHECK(!w.sent<Loaded>());
  w.from_head(Activate{PlacementVersion{2}});
  CHECK(!w.last.activate());
  w.loaded(3);
  REQUIRE(w.sent<Loaded>());
  CHECK(w.sent<Loaded>()->version == PlacementVersion{3});
  CHECK(w.agent.active() == PlacementVersion{1});
}

TEST_CASE("a load that fails is reported, and the active version serves on") {
  ServingAgent w;
  SUBCASE("by the loader") {
    w.from_head(load_of(2, {kOne, kThree}));
    w.load_failed(2, corrupt("bad"));
  }
  SUBCASE("by a placement that makes no sense") {
    Load load = load_of(2, {});
    load.placement.shards[0].device.index = 7;
    w.from_head(load);
    CHECK(!w.last.load());
  }
  REQUIRE(w.sent<LoadFailed>());
  CHECK(w.sent<LoadFailed>()->version == PlacementVersion{2});
  w.loaded(2);
  CHECK(!w.sent<Loaded>());
  CHECK(w.agent.active() == PlacementVersion{1});
}

TEST_CASE("peers that the newest version lacks are let go when it is retired to, not before") {
  ServingAgent w;
  w.from_head(load_of(2, {kThree}));
  CHECK(w.last.peers<ForgetPeer>().empty());
  w.loaded(2);
  REQUIRE(w.sent<Loaded>());
  w.from_head(Activate{PlacementVersion{2}});
  CHECK(w.last.peers<ForgetPeer>().empty());
  w.settled(2);
  SUBCASE("then, with those of a pending version: the head has given that up") {
    w.from_head(load_of(3, {kOne, kThree}));
    CHECK(w.last.peers<ExpectPeer>().empty());
    w.from_head(Retire{PlacementVersion{2}});
    CHECK(w.last.drop() == PlacementVersion{3});
    CHECK(!w.agent.loading());
    REQUIRE(w.last.peers<ForgetPeer>().size() == 1);
    CHECK(w.last.peers<ForgetPeer>()[0].id == NodeId{1});
  }
  SUBCASE("then") {
    w.from_head(Retire{PlacementVersion{2}});
    REQUIRE(w.last.peers<ForgetPeer>().size() == 1);
    CHECK(w.last.peers<ForgetPeer>()[0].id == NodeId{1});
    CHECK(w.last.nodes<PeerDown>() == std::vector{NodeId{1}});
    CHECK(w.last.peers<FencePeer>().empty());
  }
}

TEST_CASE("bytes that do not fit what was asked cost a peer that is reached its connection") {
  ServingAgent w;
  w.peer_corrupt(9, 63);
  CHECK(w.last.peers<ForgetPeer>().empty());  // no peer
  w.peer_corrupt(3, 62);
  CHECK(w.last.peers<ForgetPeer>().empty());
  w.peer_corrupt(3, 63);
  REQUIRE(w.last.peers<ForgetPeer>().size() == 1);
  CHECK(w.last.nodes<PeerDown>() == std::vector{NodeId{3}});
  REQUIRE(w.sent<PeerUnreachable>());
  CHECK(w.sent<PeerUnreachable>()->reason == "odd bytes");
  w.peer_corrupt(3, 63);
  CHECK(!w.sent<PeerUnreachable>());
}

TEST_CASE("a connection that breaks is reported once, and made again when the head says so") {
  ServingAgent w;
  w.from_head(load_of(2, {kOne, kThree}));
  w.peer_down(3, 63);
  REQUIRE(w.sent<PeerUnreachable>());
  CHECK(w.sent<PeerUnreachable>()->peer == NodeId{3});
  CHECK(w.sent<PeerUnreachable>()->incarnation == Incarnation{63});
  CHECK(w.last.nodes<PeerDown>() == std::vector{NodeId{3}});
  CHECK(!w.sent<LoadFailed>());
  w.peer_down(3, 63);
  CHECK(!w.sent<PeerUnreachable>());
  CHECK(w.last.nodes<PeerDown>().empty());
  w.loaded(2);
  CHECK(!w.sent<Loaded>());
  CHECK(w.agent.active() == PlacementVersion{1});

  SUBCASE("by the same nodes as before") {
    w.from_head(Connect{with_token(kThree, 30)});
    REQUIRE(w.last.peers<ForgetPeer>().size() == 1);
    REQUIRE(w.last.peers<ConnectPeer>().size() == 1);
    CHECK(w.last.peers<ConnectPeer>()[0].token == token(30));
    w.from_head(Connect{with_token(kThree, 30)});  // again
    CHECK(w.last.peers<ConnectPeer>().empty());
    SUBCASE("and comes about") {
      w.peer_up(3, 63);
      CHECK(w.last.nodes<PeerUp>() == std::vector{NodeId{3}});
      CHECK(w.sent<Loaded>());
    }
    SUBCASE("and fails once more") {
      w.peer_down(3, 63);
      CHECK(w.sent<PeerUnreachable>());
      CHECK(!w.sent<LoadFailed>());
    }
  }
  SUBCASE("though only the other end has seen it break") {
    w.from_head(Connect{with_token(kOne, 10)});
    CHECK(w.last.nodes<PeerDown>() == std::vector{NodeId{1}});
    REQUIRE(w.last.peers<ForgetPeer>().size() == 1);
    REQUIRE(w.last.peers<ExpectPeer>().size() == 1);
    CHECK(w.last.peers<ExpectPeer>()[0].token == token(10));
  }
  SUBCASE("with the next load") {
    w.from_head(load_of(3, {kOne, with_token(kThree, 30)}));
    REQUIRE(w.last.peers<ConnectPeer>().size() == 1);
    w.peer_up(3, 63);
    w.loaded(3);
    CHECK(w.sent<Loaded>());
  }
  SUBCASE("but not to a life that is over, or unknown") {
    w.from_head(Connect{{NodeId{3}, Incarnation{62}, "b3", token(31)}});
    CHECK(w.last.peers<ConnectPeer>().empty());
    w.from_head(Connect{{NodeId{5}, Incarnation{65}, "b5", token(32)}});
    CHECK(w.last.peers<ConnectPeer>().empty());
  }
}

TEST_CASE("a lost member is fenced, and what needs it ends") {
  ServingAgent w;
  SUBCASE("the active version serves on with what is left") {
    w.from_head(MemberLost{NodeId{3}, Incarnation{63}, "its lease ended"});
    REQUIRE(w.last.peers<FencePeer>().size() == 1);
    CHECK(w.last.peers<FencePeer>()[0].id == NodeId{3});
    REQUIRE(w.last.nodes<PeerLost>().size() == 1);
    CHECK(w.last.nodes<PeerLost>()[0] == NodeId{3});
    CHECK(!w.last.has<StopServing>());
    CHECK(w.agent.active() == PlacementVersion{1});
    w.peer_down(3, 63);  // late news of the same
    CHECK(!w.sent<PeerUnreachable>());
  }
  SUBCASE("a pending load that needs it is over without a word") {
    w.from_head(load_of(2, {kOne, kThree}));
    w.from_head(MemberLost{NodeId{3}, Incarnation{63}, "its lease ended"});
    CHECK(w.last.drop() == PlacementVersion{2});
    CHECK(!w.sent<LoadFailed>());
    CHECK(!w.agent.loading());
    w.loaded(2);
    CHECK(!w.sent<Loaded>());
    w.from_head(load_of(3, {kOne}));
    REQUIRE(w.last.load());
    w.loaded(3);
    CHECK(w.sent<Loaded>());
  }
  SUBCASE("a pending load that does not need it goes on") {
    w.from_head(load_of(2, {kOne}));
    w.from_head(MemberLost{NodeId{3}, Incarnation{63}, "its lease ended"});
    CHECK(!w.last.drop());
    w.loaded(2);
    CHECK(w.sent<Loaded>());
  }
  SUBCASE("news of an older life changes nothing") {
    w.from_head(MemberLost{NodeId{3}, Incarnation{62}, "it is late"});
    CHECK(w.last.peers<FencePeer>().empty());
    CHECK(w.last.nodes<PeerLost>().empty());
  }
  SUBCASE("its next life is another peer") {
    w.from_head(MemberLost{NodeId{3}, Incarnation{63}, "it died"});
    w.from_head(load_of(2, {kOne, {NodeId{3}, Incarnation{70}, "b3", token(7)}}));
    REQUIRE(w.last.peers<ConnectPeer>().size() == 1);
    CHECK(w.last.peers<ConnectPeer>()[0].incarnation == Incarnation{70});
    w.loaded(2);
    CHECK(!w.sent<Loaded>());
    w.peer_up(3, 70);
    CHECK(w.sent<Loaded>());
  }
}

TEST_CASE("slow devices are passed on") {
  ServingAgent w;
  w.from_head(Avoid{{{NodeId{3}, 0}}});
  REQUIRE(w.last.has<AvoidDevices>());
  CHECK(w.last.first<AvoidDevices>()->devices == std::set<DeviceRef>{{NodeId{3}, 0}});
  w.from_head(Avoid{});
  REQUIRE(w.last.has<AvoidDevices>());
  CHECK(w.last.first<AvoidDevices>()->devices.empty());
}

TEST_CASE("what the gates counted goes to the head, a member's only") {
  AgentUnderTest w;
  w.start();
  w.progress.counts = {{1, {3, 0, 4}}};
  w.wait(1s);
  CHECK(!w.sent<ExpertCounts>());
  ServingAgent s;
  s.progress.counts = {{1, {3, 0, 4}}};
  s.wait(10ms);
  REQUIRE(s.sent<ExpertCounts>());
  CHECK(s.sent<ExpertCounts>()->layers[0].tokens == std::vector<std::uint32_t>{3, 0, 4});
  s.progress.counts.clear();
  s.wait(10ms);
  CHECK(!s.sent<ExpertCounts>());
}

TEST_CASE("the head hears of a failed device at once") {
  ServingAgent w;
  w.wait(250ms);
  REQUIRE(w.sent<Renew>());
  w.now += 10ms;
  w.progress.devices[0].failed = "an uncorrectable error";
  w.call([&](auto& a, auto& out) { a.devices_changed(w.now, w.progress, out); });
  REQUIRE(w.sent<Renew>());
  CHECK(w.sent<Renew>()->devices[0].failed == "an uncorrectable error");
}

TEST_CASE("a peer that owes a sign of life for too long is cut off, though nothing was reset") {
  ServingAgent w;
  std::size_t asked = 0;
  const auto pass = [&](Duration d, std::uint64_t life_of_one) {
    for (const TimePoint end = w.now + d; w.now < end;) {
      w.wait(50ms);
      const std::size_t now_asked = w.last.peers<AskPeer>().size();
      asked += now_asked;
      if (const auto cut = w.sent<PeerUnreachable>()) return cut->peer;
      if (const auto renew = w.sent<Renew>()) w.from_head(Renewed{renew->sequence});
      if (now_asked > 0 || life_of_one != 61) w.signs_of_life({{1, life_of_one}, {3, 63}});
    }
    return NodeId{0};
  };
  CHECK(pass(5s, 61) == NodeId{0});
  CHECK(asked >= 2 * 19);  // two idle peers, with every renewal
  const TimePoint cut = w.now;
  SUBCASE("an earlier life's do not count") {
    CHECK(pass(3s, 60) == NodeId{1});
    CHECK(w.now - cut < 2200ms);
    CHECK(w.last.nodes<PeerDown>() == std::vector{NodeId{1}});
    CHECK(w.last.peers<ForgetPeer>().size() == 1);
  }
  SUBCASE("one whose bytes trickle lives, and is not asked") {
    for (int i = 0; i < 100; ++i) {
      w.wait(100ms);
      CHECK(!w.sent<PeerUnreachable>());
      CHECK(!w.last.has<AskPeer>());
      if (const auto renew = w.sent<Renew>()) w.from_head(Renewed{renew->sequence});
      w.signs_of_life({{1, 61}, {3, 63}});
    }
  }
  SUBCASE("time in which this process stood still does not count") {
    w.wait(250ms);
    CHECK(w.last.peers<AskPeer>().size() == 2);
    w.from_head(Renewed{w.sent<Renew>()->sequence});
    w.wait(3s);
    CHECK(!w.sent<PeerUnreachable>());
    w.from_head(Renewed{w.sent<Renew>()->sequence});
    CHECK(pass(3s, 60) == NodeId{1});
  }
}

TEST_CASE("of a thousand idle peers some are asked at a time, and those in use first") {
  AgentUnderTest w;
  w.become_member();
  std::vector<Peer> peers = {kThree};
  for (std::uint32_t id = 4; id < 1000; ++id)
    peers.push_back({NodeId{id}, Incarnation{1000 + id}, "b", token(1)});
  w.from_head(load_of(1, peers));
  for (const Peer& peer : peers) w.peer_up(peer.id.value, peer.incarnation.value);
  std::set<NodeId> asked;
  for (int round = 0; round < 17; ++round) {
    w.progress.traffic.clear();
    for (const Peer& peer : peers)  // who is asked answers
      w.progress.traffic.push_back(
          {peer.id, peer.incarnation, {}, asked.contains(peer.id) ? w.now : TimePoint{}});
    // Something was sent to this one, and nothing came.
    w.progress.traffic[900].sent = w.now + 1ms;
    w.progress.traffic[900].heard = {};
    w.wait(250ms);
    const auto now_asked = w.last.peers<AskPeer>();
    const auto cut = w.sent<PeerUnreachable>();
    w.from_head(Renewed{w.sent<Renew>()->sequence});
    CHECK(now_asked.size() <= 64);
    if (round == 0) CHECK(now_asked.at(0).id == peers[900].id);
    for (const Peer& peer : now_asked) asked.insert(peer.id);
    if (cut) {
      CHECK(cut->peer == peers[900].id);
      CHECK(round <= 7);
      return;
    }
  }
  FAIL("the one that never answers was not cut off");
}

TEST_CASE("peers are told as differences, and connected only where routes lead") {
  ServingAgent w;
  const Peer four{NodeId{4}, Incarnation{64}, "b4", token(4)};
  w.from_head(load_of(2, {kThree}));  // it knows it already
  CHECK(w.last.peers<ConnectPeer>().empty());
  Load more = load_of(3, {kThree, four});
  more.peers = {four};
  w.from_head(more);
  REQUIRE(w.last.peers<ConnectPeer>().size() == 1);
  CHECK(w.last.peers<ConnectPeer>()[0].id == four.id);
  REQUIRE(w.last.load());
  CHECK(w.last.load()->peers.size() == 2);
  SUBCASE("one that is on no route is let go, and connected again without being told again") {
    w.peer_up(4, 64);
    w.loaded(3);
    CHECK(w.sent<Loaded>());
    w.from_head(Activate{PlacementVersion{3}});
    w.settled(3);
    w.from_head(Retire{PlacementVersion{3}});
    REQUIRE(w.last.peers<ForgetPeer>().size() == 1);
    CHECK(w.last.peers<ForgetPeer>()[0].id == kOne.id);
    Load back = load_of(4, {kOne, kThree, four});
    back.peers.clear();
    w.from_head(back);
    REQUIRE(w.last.peers<ExpectPeer>().size() == 1);
    CHECK(w.last.peers<ExpectPeer>()[0].token == kOne.token);
  }
  SUBCASE("one that it was never told of cannot be a peer") {
    Load strange = load_of(4, {kThree, {NodeId{5}, Incarnation{65}, "b5", token(5)}});
    strange.peers.clear();
    w.from_head(strange);
    CHECK(!w.last.load());
    CHECK(w.sent<LoadFailed>());
  }
}

TEST_CASE("what ends comes before what may need its memory") {
  ServingAgent w;
  w.from_head(load_of(2, {kOne, kThree}));
  SUBCASE("with a load that takes the place of another, and of a peer's earlier life") {
    w.from_head(load_of(3, {kOne, {NodeId{3}, Incarnation{70}, "b3", token(7)}}));
    CHECK(w.last.position<FencePeer>() < w.last.position<PeerLost>());
    CHECK(w.last.position<FencePeer>() < w.last.position<ConnectPeer>());
    CHECK(w.last.position<PeerLost>() < w.last.position<DropVersion>());
    CHECK(w.last.position<DropVersion>() < w.last.position<LoadVersion>());
    CHECK(w.last.position<FencePeer>() >= 0);
    CHECK(w.last.first<DropVersion>()->next == w.last.load());
  }
  SUBCASE("with a member that is lost") {
    w.from_head(MemberLost{NodeId{3}, Incarnation{63}, "its lease ended"});
    CHECK(w.last.position<FencePeer>() >= 0);
    CHECK(w.last.position<FencePeer>() < w.last.position<PeerLost>());
    CHECK(w.last.position<PeerLost>() < w.last.position<DropVersion>());
    CHECK(w.last.first<DropVersion>()->next == nullptr);
  }
  SUBCASE("with a load that makes no sense") {
    Load load = load_of(3, {});
    load.placement.shards[0].device.index = 7;
    w.from_head(load);
    CHECK(w.last.drop() == PlacementVersion{2});
    CHECK(w.last.first<DropVersion>()->next == nullptr);
    CHECK(w.sent<LoadFailed>()->version == PlacementVersion{3});
  }
  SUBCASE("with a lease") {
    w.wait(2s);
    w.wait(limits::kLeasePause);
    CHECK(w.last.position<DropVersion>() >= 0);
    CHECK(w.last.position<DropVersion>() < w.last.position<SuspendServing>());
    CHECK(w.last.position<SuspendServing>() < w.last.position<CloseHead>());
  }
}

}  // namespace
}  // namespace troupe
