#include "actors/head/session_hub.h"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/head/standby_copy.h"
#include "actors/router/messages.h"
#include "tests/actors/effects.h"
#include "tests/actors/base/kept_mail.h"
#include "tests/actors/head/idle_keeper.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

const Ref<SupervisorInbox> kSupervisor{kHeadNode, Incarnation{3}};
const Ref<RouterInbox> kRouter{kHeadNode, Incarnation{3}};
const SessionId kSession{5};
const Address kMember = at(2, 8, ActorKind::kNodeAgent);

/// The peers' side of the sessions.
struct Lane final : SessionLane {
  Status send(std::uint32_t session, const Envelope& envelope) override {
    sent.emplace_back(session, envelope);
    return {};
  }
  void close(std::uint32_t session, const std::string& reason) override {
    closed.emplace_back(session, reason);
  }
  std::vector<std::pair<std::uint32_t, Envelope>> sent;
  std::vector<std::pair<std::uint32_t, std::string>> closed;
};

struct Clients final : SessionHub::Clients {
  void on_request(std::uint32_t session, MessagePtr) override { asked.push_back(session); }
  void on_session_down(std::uint32_t session) override { down.push_back(session); }
  std::vector<std::uint32_t> asked, down;
};

struct Fixture {
  Fixture() {
    post.attach(kSupervisor.address, supervisor);
    post.attach(kRouter.address, router);
  }
  void say(const Address& from, const Address& to, auto message) {
    hub.on_message(kSession, {from, to, message_of(std::move(message))});
  }
  template <class T>
  T told() {
    REQUIRE(!supervisor->kept.empty());
    const Mail mail = supervisor->take();
    const T* content = testing::local<SupervisorInbox, T>(mail);
    REQUIRE(content);
    return *content;
  }
  Post post;
  std::shared_ptr<KeptMail> supervisor = std::make_shared<KeptMail>();
  std::shared_ptr<KeptMail> router = std::make_shared<KeptMail>();
  Lane lane;
  SessionHub hub{post, kSupervisor, lane};
};

}  // namespace

TEST_CASE("what a session brings becomes mail, in order") {
  Fixture f;
  f.hub.on_session_up(kSession, {"10.0.0.9:1234"});
  f.say(at(9, 9), at(7, 7, ActorKind::kSupervisor), Subscribe{});
  f.hub.on_session_down(kSession, {SessionEndKind::kPeerClosed, "bye"});
  REQUIRE(f.supervisor->kept.size() == 3);
  const auto up = f.told<SessionUp>();
  CHECK(up.session == kSession.value);
  CHECK(up.peer == "10.0.0.9:1234");
  const Mail said = f.supervisor->take();
  CHECK(said.envelope.from == f.hub.address_of(kSession.value));  // whoever it says it is
  CHECK(said.envelope.to == kSupervisor.address);
  CHECK(f.told<SessionDown>().reason == "bye");
}

TEST_CASE("a bound session speaks for its member, and for nobody else") {
  Fixture f;
  f.hub.bind(kSession.value, kMember.node, kMember.incarnation);
  f.say(kMember, kSupervisor.address, Leave{});
  f.say(at(2, 7, ActorKind::kNodeAgent), kSupervisor.address, Leave{});  // its older life
  f.say(at(3, 8, ActorKind::kNodeAgent), kSupervisor.address, Leave{});
  f.say(kMember, kRouter.address, SequenceEvents{});
  REQUIRE(f.supervisor->kept.size() == 1);
  CHECK(f.supervisor->kept[0].envelope.from == kMember);
  CHECK(f.router->kept.size() == 1);
}

TEST_CASE("the post reaches a member through its session until that is closed") {
  Fixture f;
  f.hub.bind(kSession.value, kMember.node, kMember.incarnation);
  f.post.send({kSupervisor.address, kMember, message_of(Stop{"x"})});
  REQUIRE(f.lane.sent.size() == 1);
  CHECK(f.lane.sent[0].first == kSession.value);
  f.hub.close(kSession.value, "enough");
  CHECK(f.lane.closed.size() == 1);
  f.post.send({kSupervisor.address, kMember, message_of(Stop{"x"})});
  CHECK(f.lane.sent.size() == 1);
  CHECK(f.supervisor->kept.size() == 1);  // Undeliverable
}

TEST_CASE("a session that is no member's can be answered") {
  Fixture f;
  f.post.send({kSupervisor.address, f.hub.address_of(9), message_of(Undeliverable{})});
  REQUIRE(f.lane.sent.size() == 1);
  CHECK(f.lane.sent[0].first == 9);
}

TEST_CASE("what programs generate goes to the clients' door, and so does their end") {
  Fixture f;
  Clients clients;
  f.hub.set_clients(clients);
  f.say(at(9, 9), kSupervisor.address, ClientGenerate{});
  f.say(at(9, 9), kSupervisor.address, ClientCancel{});
  CHECK(clients.asked.size() == 2);
  CHECK(f.supervisor->kept.empty());
  f.hub.on_session_down(kSession, {});
  CHECK(clients.down == std::vector{kSession.value});
  CHECK(f.supervisor->kept.size() == 1);
}

TEST_CASE("a local link is a session like another") {
  Fixture f;
  std::vector<std::string> seen;
  const auto link = f.hub.make_local_link();
  link->listen({[&](const ControlWay&) { seen.push_back("up"); },
                [&](const Envelope&) { seen.push_back("message"); },
                [&](const std::string&, bool) { seen.push_back("down"); }});
  CHECK_FALSE(link->send({{}, kSupervisor.address, message_of(Subscribe{})}).ok());
  link->connect();
  const std::uint32_t session = f.told<SessionUp>().session;
  REQUIRE(link->send({{}, kSupervisor.address, message_of(Subscribe{})}).ok());
  CHECK(f.supervisor->take().envelope.from == f.hub.address_of(session));
  REQUIRE(f.hub.send(session, {kSupervisor.address, {}, message_of(Stop{"x"})}).ok());
  link->close();
  CHECK(f.told<SessionDown>().session == session);
  CHECK_FALSE(f.hub.send(session, {kSupervisor.address, {}, message_of(Stop{"x"})}).ok());
  CHECK(seen == std::vector<std::string>{"up", "message", "down"});
  CHECK(f.lane.sent.empty());
}

TEST_CASE("a standby of an older version is not told what it need not know") {
  Fixture f;
  IdleKeeper keeper;
  StandbyCopy copy;
  copy.begin(f.hub, kSupervisor.address);
  KeepRecords records{1, 2, true, true, true, kSession.value,
                      {JournalForgotten{3}, JournalCrashes{4, 1, 5}}};
  for (const std::uint32_t protocol : {kProtocol.newest - 1, kProtocol.newest}) {
    CAPTURE(protocol);
    f.lane.sent.clear();
    copy.speak(protocol);
    copy.copy(records);  // the disk may be late with what is known
    copy.copy_known(kSession.value, keeper, [](const auto& what) { what(); });
    REQUIRE(f.lane.sent.size() == 2);
    const auto& told = std::get<JournalCopy>(*f.lane.sent[0].second.message);
    CHECK(told.completes);
    CHECK(told.records.size() == (protocol == kProtocol.newest ? 2 : 1));
    CHECK(protocol_of(*f.lane.sent[0].second.message) <= protocol);
  }
}
