#include "actors/node_agent/node_agent.h"

#include <doctest/doctest.h>

namespace troupe {
namespace {

using namespace std::chrono_literals;
using State = NodeAgent::State;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

NodeAgentOptions options() {
  NodeAgentOptions o;
  o.version = "0.1.0";
  o.host = "h";
  o.pid = 9;
  o.head = "head:6379";
  o.numerics = {Numerics::kReference, Numerics::kAvx2};
  o.devices = {{"cpu", 1 << 20, 1}};
  o.fabric_address = "bulk";
  return o;
}

Greeting good_greeting() { return {kProtocol, "c1", "0.1.0", "/models/m", "abc", Numerics::kAvx2}; }

constexpr Incarnation kHeadLife{50};
constexpr NodeId kSelf{2};
constexpr Incarnation kLife{51};

FabricToken token(int n) {
  FabricToken t{};
  t[0] = static_cast<std::byte>(n);
  return t;
}

Load load_of(std::uint64_t version, std::vector<Peer> peers) {
  Load load;
  load.placement.version = PlacementVersion{version};
  load.placement.replicas = {{0, kSelf, 10}, {1, NodeId{3}, 10}};
  load.placement.shards = {{0, 0, 0, 0, 1, {kSelf, 0}}, {1, 0, 0, 0, 1, {NodeId{3}, 0}}};
  load.placement.experts = {{1, {{0, {kSelf, 0}}, {1, {NodeId{3}, 0}}, {2, {kSelf, 0}}}}};
  load.peers = std::move(peers);
  return load;
}

/// A NodeAgent and the head it talks to.
struct Worker {
  NodeAgent agent;
  TimePoint now = TimePoint{} + 1h;
  NodeAgentActions last;
  NodeProgress progress;

  explicit Worker(NodeAgentOptions o = options()) : agent(std::move(o)) {
    progress.devices.resize(1);
  }

  template <class Call>
  void call(Call&& c) {
    last = {};
    c(agent, last);
  }
  void start() {
    call([&](auto& a, auto& out) { a.start(now, out); });
  }
  void up() {
    call([&](auto& a, auto& out) { a.session_up(now, out); });
  }
  void down(bool foreign = false) {
    call([&](auto& a, auto& out) { a.session_down("reset", foreign, now, out); });
  }
  void inspected(const Result<std::string>& hash) {
    call([&](auto& a, auto& out) { a.checkpoint_inspected(hash, now, out); });
  }
  void loaded(std::uint64_t version) {
    call([&](auto& a, auto& out) { a.loaded(PlacementVersion{version}, now, out); });
  }
  void peer_up(std::uint32_t node, std::uint64_t life) {
    call([&](auto& a, auto& out) { a.peer_up(NodeId{node}, Incarnation{life}, now, out); });
  }
  void wait(Duration d) {
    now += d;
    call([&](auto& a, auto& out) { a.on_wake(now, progress, out); });
  }
  /// Wakes as often as it asks to.
  void live(Duration d, bool answer) {
    const TimePoint end = now + d;
    while (now < end && agent.state() == State::kMember) {
      wait(std::min<Duration>(50ms, end - now));
      const auto* renew = sent<Renew>();
      if (renew && answer) from_head(Renewed{renew->sequence});
    }
  }
  template <class T>
  void from_head(T message, Incarnation head = kHeadLife, Incarnation self = kLife) {
    const Address from{kHeadNode, head, {ActorKind::kSupervisor, 0}};
    const Address to{kSelf, self, {ActorKind::kNodeAgent, 0}};
    call([&](auto& a, auto& out) { a.on({from, to, message_of(std::move(message))}, now, out); });
  }
  template <class T>
  const T* sent() const {
    for (const auto& send : last.sends) {
      if (const auto* m = std::get_if<T>(send.message.get())) return m;
    }
    return nullptr;
  }
  void become_member() {
    start();
    up();
    from_head(good_greeting());
    inspected(std::string("abc"));
    from_head(Welcome{kSelf, kLife, 1200});
    REQUIRE(agent.state() == State::kMember);
  }
};

TEST_CASE("seek, greet, inspect, join") {
  Worker w;
  w.start();
  CHECK(w.last.connect_head);
  REQUIRE(w.last.log.size() == 1);
  CHECK(contains(w.last.log[0], "head:6379"));
  w.up();
  w.from_head(good_greeting());
  REQUIRE(w.last.inspect_checkpoint);
  CHECK(*w.last.inspect_checkpoint == "/models/m");
  w.inspected(std::string("abc"));
  const auto* join = w.sent<Join>();
  REQUIRE(join);
  CHECK(join->checkpoint_hash == "abc");
  CHECK(join->held_id == NodeId{0});
  CHECK(w.last.sends[0].to == Address{kHeadNode, kHeadLife, {ActorKind::kSupervisor, 0}});
  w.from_head(Welcome{kSelf, kLife, 1200});
  REQUIRE(w.last.joined);
  CHECK(w.last.joined->id == kSelf);
  CHECK(w.agent.incarnation() == kLife);
  // It seeks again with what it held, and does not read the same checkpoint twice.
  w.down();
  CHECK(w.last.stop_serving);
  CHECK(w.agent.state() == State::kSeeking);
  w.wait(limits::kSeekBackoffMin);
  CHECK(w.last.connect_head);
  w.up();
  w.from_head(good_greeting(), Incarnation{90});
  REQUIRE(w.sent<Join>());
  CHECK(w.sent<Join>()->held_id == kSelf);
  CHECK(w.sent<Join>()->held_cluster == "c1");
}

TEST_CASE("its own --model is used, and another checkpoint is read anew") {
  auto o = options();
  o.model_path = "/mine";
  Worker w(o);
  w.start();
  w.up();
  w.from_head(good_greeting());
  CHECK(w.last.inspect_checkpoint == "/mine");
}

TEST_CASE("back-off doubles to its maximum and says why once") {
  Worker w;
  w.start();
  Duration expected = limits::kSeekBackoffMin;
  for (int i = 0; i < 8; ++i) {
    w.down();
    CHECK(w.last.log.size() == (i == 0 ? 1 : 0));
    REQUIRE(w.last.wake);
    CHECK(*w.last.wake == w.now + expected);
    w.wait(expected - 1ms);
    CHECK(!w.last.connect_head);
    w.wait(1ms);
    CHECK(w.last.connect_head);
    expected = std::min<Duration>(expected * 2, limits::kSeekBackoffMax);
  }
}

TEST_CASE("every wait for the head ends") {
  Worker w;
  w.start();
  SUBCASE("for the connection") {}
  SUBCASE("for the greeting") { w.up(); }
  SUBCASE("for the checkpoint") {
    w.up();
    w.from_head(good_greeting());
  }
  SUBCASE("for the welcome") {
    w.up();
    w.from_head(good_greeting());
    w.inspected(std::string("abc"));
  }
  REQUIRE(w.last.wake);
  w.wait(*w.last.wake - w.now);
  CHECK(w.agent.state() == State::kSeeking);
  CHECK(w.last.close_session);
}

TEST_CASE("what no retry can help ends the worker with one sentence") {
  Worker w;
  w.start();
  const char* text = "";
  bool told = true;
  SUBCASE("protocol") {
    w.up();
    auto g = good_greeting();
    g.protocol = {5, 6};
    w.from_head(g);
    text = "protocols 5 to 6";
  }
  SUBCASE("numerics") {
    w.up();
    auto g = good_greeting();
    g.numerics = Numerics::kAmxBf16;
    w.from_head(g);
    text = "amx_bf16";
  }
  SUBCASE("another checkpoint") {
    w.up();
    w.from_head(good_greeting());
    w.inspected(std::string("xyz"));
    text = "another one than the head's";
  }
  SUBCASE("no checkpoint") {
    w.up();
    w.from_head(good_greeting());
    w.inspected(not_found("/models/m/config.json does not exist."));
    text = "--model";
  }
  SUBCASE("refused") {
    w.up();
    w.from_head(good_greeting());
    w.inspected(std::string("abc"));
    w.from_head(Refused{ErrorCode::kRefused, "Not you."});
    text = "Not you.";
    told = false;
  }
  SUBCASE("a foreign certificate") {
    w.down(true);
    text = "--join";
    told = false;
  }
  REQUIRE(w.last.exit);
  CHECK(w.last.exit->code == 1);
  CHECK_MESSAGE(contains(w.last.exit->reason, text), w.last.exit->reason);
  CHECK((w.sent<Leave>() != nullptr) == told);
  CHECK(w.agent.state() == State::kEnded);
  CHECK(!w.last.wake);
}

TEST_CASE("a refusal that passes is tried again") {
  Worker w;
  w.start();
  w.up();
  w.from_head(good_greeting());
  w.inspected(std::string("abc"));
  w.from_head(Refused{ErrorCode::kUnavailable, "The cluster is stopping."});
  CHECK(!w.last.exit);
  CHECK(w.last.close_session);
  CHECK(w.agent.state() == State::kSeeking);
}

TEST_CASE("the lease runs from the sending, is renewed, and ends") {
  Worker w;
  w.become_member();
  CHECK(w.agent.lease_end() == w.now + 1200ms);
  w.live(5s, true);
  CHECK(w.agent.state() == State::kMember);
  SUBCASE("unanswered renews do not count") {
    const TimePoint end = w.agent.lease_end();
    w.live(5s, false);
    CHECK(w.now >= end);
    CHECK(w.now < end + 51ms);
  }
  SUBCASE("a late answer counts from when its renew was sent") {
    w.wait(250ms);
    REQUIRE(w.sent<Renew>());
    const auto sequence = w.sent<Renew>()->sequence;
    const TimePoint sent_at = w.now;
    w.wait(400ms);
    w.from_head(Renewed{sequence});
    CHECK(w.agent.lease_end() == sent_at + 1200ms);
    const TimePoint end = w.agent.lease_end();
    w.from_head(Renewed{sequence});
    w.from_head(Renewed{9999});
    CHECK(w.agent.lease_end() == end);
    w.wait(2s);
  }
  SUBCASE("a stuck device does not renew") {
    w.progress.devices_alive = false;
    w.live(5s, true);
  }
  SUBCASE("what comes after its end is not used") {
    w.now += 3s;  // the process was stopped meanwhile
    w.from_head(load_of(1, {}));
    CHECK(!w.last.load);
  }
  CHECK(w.agent.state() == State::kSeeking);
  CHECK(w.last.stop_serving);
  CHECK(w.last.close_session);
  CHECK(w.agent.id() == NodeId{0});
}

TEST_CASE("a load is this node's part, and done when weights and peers are there") {
  Worker w;
  w.become_member();
  const Peer one{NodeId{1}, Incarnation{61}, "b1", token(1)};
  const Peer three{NodeId{3}, Incarnation{63}, "b3", token(3)};
  w.from_head(load_of(1, {one, three}));
  REQUIRE(w.last.load);
  CHECK(w.last.load->shards.size() == 1);
  CHECK(w.last.load->replicas.size() == 1);
  REQUIRE(w.last.load->experts.size() == 1);
  CHECK(w.last.load->experts[0].slots.size() == 2);
  CHECK(w.last.load->model_path == "/models/m");
  REQUIRE(w.last.connect_peers.size() == 1);  // the lower id goes to the other
  CHECK(w.last.connect_peers[0].id == NodeId{3});
  REQUIRE(w.last.expect_peers.size() == 1);
  CHECK(w.last.expect_peers[0].id == NodeId{1});

  w.peer_up(1, 61);
  w.loaded(1);
  CHECK(!w.sent<Loaded>());
  w.peer_up(3, 62);  // an older life
  CHECK(!w.sent<Loaded>());
  w.from_head(Activate{PlacementVersion{1}});
  CHECK(!w.last.activate);
  CHECK(w.sent<Undeliverable>());
  w.peer_up(3, 63);
  REQUIRE(w.sent<Loaded>());
  w.from_head(Activate{PlacementVersion{1}});
  CHECK(w.last.activate == PlacementVersion{1});
  CHECK(w.agent.active() == PlacementVersion{1});

  SUBCASE("the next version keeps what stands and makes anew what changed") {
    const Peer again{NodeId{1}, Incarnation{61}, "b1", token(9)};
    w.from_head(load_of(2, {again, three}));
    CHECK(w.last.deactivate == PlacementVersion{1});
    CHECK(!w.agent.active());
    REQUIRE(w.last.forget_peers.size() == 1);
    CHECK(w.last.forget_peers[0].token == token(1));
    REQUIRE(w.last.expect_peers.size() == 1);
    CHECK(w.last.connect_peers.empty());
    w.loaded(1);  // late news
    w.loaded(2);
    CHECK(!w.sent<Loaded>());
    w.peer_up(1, 61);
    REQUIRE(w.sent<Loaded>());
    CHECK(w.sent<Loaded>()->version == PlacementVersion{2});
  }
  SUBCASE("the same load again, or an older one, changes nothing") {
    w.from_head(load_of(1, {}));
    CHECK(!w.last.load);
    CHECK(w.agent.active() == PlacementVersion{1});
  }
  SUBCASE("taken back") {
    w.from_head(Deactivate{PlacementVersion{1}});
    CHECK(w.last.deactivate == PlacementVersion{1});
    CHECK(!w.last.stop_serving);
    CHECK(!w.agent.active());
  }
  SUBCASE("a peer that is gone is reported") {
    w.call(
        [&](auto& a, auto& out) { a.peer_down(NodeId{3}, Incarnation{63}, "reset", w.now, out); });
    REQUIRE(w.sent<PeerUnreachable>());
    CHECK(w.sent<PeerUnreachable>()->peer == NodeId{3});
    CHECK(w.agent.active() == PlacementVersion{1});
  }
  SUBCASE("the end of the membership forgets the peers") {
    w.down();
    CHECK(w.last.stop_serving);
    CHECK(w.last.forget_peers.size() == 2);
  }
}

TEST_CASE("a load that fails is reported") {
  Worker w;
  w.become_member();
  SUBCASE("by the loader") {
    w.from_head(load_of(1, {}));
    w.call([&](auto& a, auto& out) {
      a.load_failed(PlacementVersion{1}, corrupt("bad"), w.now, out);
    });
  }
  SUBCASE("by a peer that does not come") {
    w.from_head(load_of(1, {{NodeId{3}, Incarnation{63}, "b3", token(3)}}));
    w.call([&](auto& a, auto& out) {
      a.peer_down(NodeId{3}, Incarnation{63}, "timed out", w.now, out);
    });
    CHECK(w.sent<PeerUnreachable>());
  }
  SUBCASE("by a placement that makes no sense") {
    Load load = load_of(1, {});
    load.placement.shards[0].device.index = 7;
    w.from_head(load);
    CHECK(!w.last.load);
  }
  REQUIRE(w.sent<LoadFailed>());
  CHECK(w.sent<LoadFailed>()->version == PlacementVersion{1});
  w.loaded(1);
  CHECK(!w.sent<Loaded>());
}

TEST_CASE("messages of other lives are refused with an error and never used") {
  Worker w;
  w.become_member();
  w.from_head(load_of(1, {}), Incarnation{49});
  CHECK(!w.last.load);
  CHECK(w.sent<Undeliverable>());
  w.from_head(load_of(1, {}), kHeadLife, Incarnation{40});
  CHECK(!w.last.load);
  CHECK(w.sent<Undeliverable>());
  w.from_head(Stop{"no"}, Incarnation{49});
  CHECK(!w.last.exit);
  w.from_head(Welcome{NodeId{8}, Incarnation{80}, 1200});
  CHECK(w.agent.id() == kSelf);
  CHECK(w.agent.refused_messages() == 4);
}

TEST_CASE("it ends in order") {
  Worker w;
  SUBCASE("when the head stops the cluster") {
    w.become_member();
    w.from_head(Stop{"a client asked for it"});
    CHECK(w.sent<Leave>());
  }
  SUBCASE("by a signal, when the head has let it go") {
    w.become_member();
    w.call([&](auto& a, auto& out) { a.leave("SIGTERM", w.now, out); });
    CHECK(w.sent<Leave>());
    CHECK(w.last.stop_serving);
    CHECK(!w.last.exit);
    w.down();
  }
  SUBCASE("by a signal, when the head does not answer") {
    w.become_member();
    w.call([&](auto& a, auto& out) { a.leave("SIGTERM", w.now, out); });
    w.wait(limits::kLeaveDeadline);
  }
  SUBCASE("by a signal while it seeks") {
    w.start();
    w.call([&](auto& a, auto& out) { a.leave("SIGTERM", w.now, out); });
  }
  REQUIRE(w.last.exit);
  CHECK(w.last.exit->code == 0);
  CHECK(w.agent.state() == State::kEnded);
}

}  // namespace
}  // namespace troupe
