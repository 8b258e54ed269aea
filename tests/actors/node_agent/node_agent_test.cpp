#include "tests/actors/node_agent/agent_under_test.h"

namespace troupe {
namespace {

TEST_CASE("seek, greet, inspect, join") {
  AgentUnderTest w;
  w.start();
  CHECK(w.last.has<ConnectHead>());
  REQUIRE(w.last.log().size() == 1);
  CHECK(contains(w.last.log()[0], "head:6379"));
  w.up();
  w.from_head(good_greeting());
  REQUIRE(w.last.has<InspectCheckpoint>());
  CHECK(w.last.first<InspectCheckpoint>()->folder == "/models/m");
  w.inspected(std::string("abc"));
  const auto join = w.sent<Join>();
  REQUIRE(join);
  CHECK(join->checkpoint_hash == "abc");
  CHECK(join->held_id == NodeId{0});
  CHECK(w.last.all<SendAs>()[0].envelope.to ==
        Address{kHeadNode, kHeadLife, {ActorKind::kSupervisor, 0}});
  w.from_head(Welcome{kSelf, kLife, 1200});
  REQUIRE(w.last.has<JoinedCluster>());
  CHECK(w.last.first<JoinedCluster>()->id == kSelf);
  CHECK(w.agent.incarnation() == kLife);
  // It seeks again with what it held, and does not read the same checkpoint twice.
  w.down();
  CHECK(w.last.has<StopServing>());
  CHECK(w.agent.state() == State::kSeeking);
  w.wait(limits::kSeekBackoffMin);
  CHECK(w.last.has<ConnectHead>());
  w.up();
  w.from_head(good_greeting(), Incarnation{90});
  REQUIRE(w.sent<Join>());
  CHECK(w.sent<Join>()->held_id == kSelf);
  CHECK(w.sent<Join>()->held_cluster == "c1");
}

TEST_CASE("its own --model is used, and another checkpoint is read again") {
  auto o = options();
  o.model_path = "/mine";
  AgentUnderTest w(o);
  w.start();
  w.up();
  w.from_head(good_greeting());
  REQUIRE(w.last.has<InspectCheckpoint>());
  CHECK(w.last.first<InspectCheckpoint>()->folder == "/mine");
}

TEST_CASE("back-off doubles to its maximum and says why once") {
  AgentUnderTest w;
  w.start();
  Duration expected = limits::kSeekBackoffMin;
  for (int i = 0; i < 8; ++i) {
    w.down();
    CHECK(w.last.log().size() == (i == 0 ? 1 : 0));
    REQUIRE(w.last.effects.wake());
    CHECK(*w.last.effects.wake() == w.now + expected);
    w.wait(expected - 1ms);
    CHECK(!w.last.has<ConnectHead>());
    w.wait(1ms);
    CHECK(w.last.has<ConnectHead>());
    expected = std::min<Duration>(expected * 2, limits::kSeekBackoffMax);
  }
}

TEST_CASE("every wait for the head ends") {
  AgentUnderTest w;
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
  REQUIRE(w.last.effects.wake());
  w.wait(*w.last.effects.wake() - w.now);
  CHECK(w.agent.state() == State::kSeeking);
  CHECK(w.last.has<CloseHead>());
}

TEST_CASE("a head that is older than the one before hears so, once") {
  AgentUnderTest w;
  w.become_member();
  w.down();
  const auto greeted = [&w](std::uint64_t head) {
    w.wait(*w.last.effects.wake() - w.now);
    w.up();
    w.from_head(good_greeting(), Incarnation{head});
  };
  for (int time = 0; time < 3; ++time) {
    greeted(kHeadLife.value - 1);
    const auto leave = w.sent<Leave>();
    CHECK(leave.has_value() == (time == 0));
    if (leave) CHECK(contains(leave->reason, "follows a newer head"));
    CHECK(w.last.has<CloseHead>());
    REQUIRE(w.agent.state() == State::kSeeking);
  }
  greeted(kHeadLife.value - 2);
  CHECK(w.sent<Leave>().has_value());
  greeted(kHeadLife.value);
  CHECK(w.agent.state() != State::kSeeking);
}

TEST_CASE("an inspection of another folder that answers late does not let it join") {
  AgentUnderTest w;
  w.start();
  w.up();
  w.from_head(good_greeting());
  w.wait(*w.last.effects.wake() - w.now);
  REQUIRE(w.agent.state() == State::kSeeking);
  w.wait(*w.last.effects.wake() - w.now);
  w.up();
  auto other = good_greeting();
  other.model_path = "/models/tuned";
  w.from_head(other);
  w.inspected(std::string("abc"), "/models/m");
  CHECK(!w.sent<Join>());
  CHECK(w.agent.state() == State::kInspecting);
  w.inspected(std::string("abc"), "/models/tuned");
  CHECK(w.sent<Join>());
}

TEST_CASE("an inspection that is slow goes on while sessions come and go, and is not begun again") {
  AgentUnderTest w;
  w.start();
  for (int session = 0; session < 3; ++session) {
    w.up();
    w.from_head(good_greeting());
    CHECK(w.last.has<InspectCheckpoint>() == (session == 0));
    CHECK(w.agent.state() == State::kInspecting);
    w.wait(*w.last.effects.wake() - w.now);
    CHECK(w.last.has<CloseHead>());
    REQUIRE(w.agent.state() == State::kSeeking);
    w.wait(*w.last.effects.wake() - w.now);
  }
  w.inspected(std::string("abc"));
  w.up();
  w.from_head(good_greeting());
  CHECK(!w.last.has<InspectCheckpoint>());
  CHECK(w.sent<Join>());
}

TEST_CASE("a late error of an older folder ends nothing") {
  AgentUnderTest w;
  w.start();
  w.up();
  w.from_head(good_greeting());
  w.wait(*w.last.effects.wake() - w.now);
  w.wait(*w.last.effects.wake() - w.now);
  w.up();
  auto other = good_greeting();
  other.model_path = "/models/tuned";
  w.from_head(other);
  w.inspected(not_found("/models/m is gone."), "/models/m");
  CHECK(!w.last.has<WorkerExit>());
  CHECK(w.agent.state() == State::kInspecting);
  w.inspected(std::string("abc"), "/models/tuned");
  CHECK(w.sent<Join>());
}

TEST_CASE("an inspection that fails for a passing reason is begun again later") {
  AgentUnderTest w;
  w.start();
  w.up();
  w.from_head(good_greeting());
  w.inspected(unavailable("Too many open files"));
  CHECK(!w.last.has<WorkerExit>());
  CHECK(w.agent.state() == State::kSeeking);
  w.wait(*w.last.effects.wake() - w.now);
  w.up();
  w.from_head(good_greeting());
  CHECK(w.last.has<InspectCheckpoint>());
}

TEST_CASE("what no retry can help ends the worker with one sentence") {
  AgentUnderTest w;
  w.start();
  const char* text = "";
  bool told = true;
  SUBCASE("protocol") {
    w.up();
    auto g = good_greeting();
    g.protocol = {70, 80};
    w.from_head(g);
    text = "protocols 70 to 80";
  }
  SUBCASE("numerics") {
    w.up();
    auto g = good_greeting();
    g.numerics = Numerics::kBf16KvFp8;
    w.from_head(g);
    text = "bf16+kv_fp8";
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
    text = "reset";  // as the link says it
    told = false;
  }
  REQUIRE(w.last.has<WorkerExit>());
  CHECK(w.last.first<WorkerExit>()->code == 1);
  CHECK_MESSAGE(contains(w.last.first<WorkerExit>()->reason, text),
                w.last.first<WorkerExit>()->reason);
  CHECK(w.sent<Leave>().has_value() == told);
  CHECK(w.agent.state() == State::kEnded);
  CHECK(!w.last.effects.wake());
}

TEST_CASE("a refusal that passes is tried again") {
  AgentUnderTest w;
  w.start();
  w.up();
  w.from_head(good_greeting());
  w.inspected(std::string("abc"));
  w.from_head(Refused{ErrorCode::kUnavailable, "The cluster is stopping."});
  CHECK(!w.last.has<WorkerExit>());
  CHECK(w.last.has<CloseHead>());
  CHECK(w.agent.state() == State::kSeeking);
}

TEST_CASE("the lease runs from the sending, is renewed, and ends") {
  AgentUnderTest w;
  w.become_member();
  CHECK(w.agent.lease_end() == w.now + 1200ms);
  w.live(5s, true);
  CHECK(w.agent.state() == State::kMember);
  SUBCASE("unanswered renews do not count") {
    const TimePoint end = w.agent.lease_end();
    w.live(8s, false);
    CHECK(w.now >= end + limits::kLeasePause);
    CHECK(w.now < end + limits::kLeasePause + 251ms);
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
    w.live(8s, false);
  }
  SUBCASE("a stuck device does not renew") {
    w.progress.devices_alive = false;
    w.live(8s, true);
  }
  SUBCASE("what comes after its end is not used") {
    w.wait(2s);
    w.now += limits::kLeasePause;
    w.from_head(load_of(1, {}));
    CHECK(!w.last.load());
  }
  CHECK(w.agent.state() == State::kSeeking);
  CHECK(w.last.has<StopServing>());
  CHECK(w.last.has<CloseHead>());
  CHECK(w.agent.id() == NodeId{0});
}

TEST_CASE("when its lease has ended a worker sends nothing, asks, and goes on if it is renewed") {
  AgentUnderTest w;
  w.become_member();
  w.live(5s, true);
  w.wait(3s);  // the process stood still
  CHECK(w.agent.state() == State::kMember);
  REQUIRE(w.last.first<HoldMail>());
  CHECK(w.last.first<HoldMail>()->incarnation == kLife);
  const auto renew = w.sent<Renew>();
  REQUIRE(renew);
  SUBCASE("an answer to what it sent before is too old") {
    w.from_head(Renewed{renew->sequence - 1});
    CHECK(!w.last.has<EndHold>());
    w.wait(250ms);
    CHECK(!w.last.has<HoldMail>());  // once
    CHECK(w.sent<Renew>());
  }
  SUBCASE("it is renewed") {
    w.from_head(Renewed{renew->sequence});
    REQUIRE(w.last.first<EndHold>());
    CHECK(w.last.first<EndHold>()->send);
    CHECK(w.agent.id() == kSelf);
    CHECK(w.agent.incarnation() == kLife);
    w.live(5s, true);
    CHECK(w.agent.state() == State::kMember);
    CHECK(!w.last.has<HoldMail>());
  }
  SUBCASE("it was fenced") {
    w.down();
    REQUIRE(w.last.first<EndHold>());
    CHECK(!w.last.first<EndHold>()->send);
    CHECK(w.last.has<StopServing>());
    CHECK(w.agent.state() == State::kSeeking);
  }
}

TEST_CASE("a welcome that comes after its lease has ended is kept, and the head asked") {
  AgentUnderTest w;
  w.start();
  w.up();
  w.from_head(good_greeting());
  w.inspected(std::string("abc"));
  REQUIRE(w.sent<Join>());
  w.now += 2s;  // the head stood still
  w.from_head(Welcome{kSelf, kLife, 1200});
  CHECK(w.agent.state() == State::kMember);
  CHECK(!w.last.has<CloseHead>());
  CHECK(w.last.position<JoinedCluster>() < w.last.position<HoldMail>());
  w.wait(Duration::zero());
  const auto renew = w.sent<Renew>();
  REQUIRE(renew);
  SUBCASE("it is renewed") {
    w.from_head(Renewed{renew->sequence});
    CHECK(w.last.has<EndHold>());
    w.live(5s, true);
    CHECK(w.agent.state() == State::kMember);
  }
  SUBCASE("nobody answers") {
    w.live(8s, false);
    CHECK(w.agent.state() == State::kSeeking);
  }
}

TEST_CASE("messages of other lives are refused with an error and never used") {
  AgentUnderTest w;
  w.become_member();
  w.from_head(load_of(1, {}), Incarnation{49});
  CHECK(!w.last.load());
  CHECK(w.sent<Undeliverable>());
  w.from_head(load_of(1, {}), kHeadLife, Incarnation{40});
  CHECK(!w.last.load());
  CHECK(w.sent<Undeliverable>());
  w.from_head(Stop{"no"}, Incarnation{49});
  CHECK(!w.last.has<WorkerExit>());
  w.from_head(Welcome{NodeId{8}, Incarnation{80}, 1200});
  CHECK(w.agent.id() == kSelf);
  CHECK(w.agent.refused_messages() == 4);
}

TEST_CASE("it ends in order") {
  AgentUnderTest w;
  SUBCASE("when the head stops the cluster") {
    w.become_member();
    w.from_head(Stop{"a client asked for it"});
    CHECK(w.sent<Leave>());
  }
  SUBCASE("by a signal, when the head has let it go") {
    w.become_member();
    w.leave("SIGTERM");
    CHECK(w.sent<Leave>());
    CHECK(w.last.has<StopServing>());
    CHECK(!w.last.has<WorkerExit>());
    w.down();
  }
  SUBCASE("by a signal, when the head does not answer") {
    w.become_member();
    w.leave("SIGTERM");
    w.wait(limits::kLeaveDeadline);
  }
  SUBCASE("by a signal while it seeks") {
    w.start();
    w.leave("SIGTERM");
  }
  REQUIRE(w.last.has<WorkerExit>());
  CHECK(w.last.first<WorkerExit>()->code == 0);
  CHECK(w.agent.state() == State::kEnded);
}

TEST_CASE("a member leaves under the address that it had, before it stops") {
  AgentUnderTest w;
  w.become_member();
  const Address self{kSelf, kLife, {ActorKind::kNodeAgent, 0}};
  SUBCASE("by a signal") { w.leave("SIGTERM"); }
  SUBCASE("because the head stops the cluster") {
    w.from_head(Stop{"a client asked for it"});
    CHECK(w.last.position<StopServing>() < w.last.position<CloseHead>());
    CHECK(w.last.position<CloseHead>() < w.last.position<WorkerExit>());
  }
  REQUIRE(w.last.envelopes<Leave>().size() == 1);
  CHECK(w.last.envelopes<Leave>()[0].from == self);
  CHECK(w.last.position<SendAs>() < w.last.position<StopServing>());
  REQUIRE(w.last.has<StopServing>());
  CHECK(w.last.first<StopServing>()->id == kSelf);
  CHECK(w.last.first<StopServing>()->incarnation == kLife);
}

}  // namespace
}  // namespace troupe
