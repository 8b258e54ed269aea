#include <doctest/doctest.h>

#include <string>

#include "runtime/overloaded.h"
#include "tests/actors/supervisor/head_fixture.h"

// The order in which the Supervisor wants things done within one turn.

namespace troupe {
namespace {

using namespace testing;

/// The names of what a turn does, in its order. Messages count with their own names.
std::string order_of(const SupervisorEffects& effects) {
  const auto of_message = [](const MessagePtr& message) -> std::string {
    if (std::holds_alternative<Welcome>(*message)) return "Welcome";
    if (std::holds_alternative<Refused>(*message)) return "Refused";
    if (std::holds_alternative<Load>(*message)) return "Load";
    if (std::holds_alternative<StopReply>(*message)) return "StopReply";
    if (std::holds_alternative<Stop>(*message)) return "Stop";
    if (std::holds_alternative<MemberLost>(*message)) return "MemberLost";
    return "other";
  };
  const auto of_news = [](const LocalMessagePtr& message) -> std::string {
    const auto says = [&]<class T>(std::type_identity<T>) {
      return message->index == RouterInbox::local::index<T>();
    };
    if (says(std::type_identity<ReplicasLost>{})) return "ReplicasLost";
    if (says(std::type_identity<ReplicasChanged>{})) return "ReplicasChanged";
    if (says(std::type_identity<AdmissionChanged>{})) return "AdmissionChanged";
    if (says(std::type_identity<RequestsEnd>{})) return "RequestsEnd";
    return "other";
  };
  std::string names;
  for (const auto& effect : effects.list()) {
    const std::string name =
        std::visit(Overloaded{
                       [&](const Send& e) { return of_message(e.message); },
                       [&](const SendToSession& e) { return of_message(e.message); },
                       [&](const Tell& e) { return of_news(e.message); },
                       [](const KeepNextNode&) -> std::string { return "keep"; },
                       [](const BindSession&) -> std::string { return "bind"; },
                       [](const CloseSession&) -> std::string { return "close"; },
                       [](const HeadMayEnd&) -> std::string { return "may end"; },
                       [](const auto&) -> std::string { return "other"; },
                   },
                   effect);
    if (name != "other") names += (names.empty() ? "" : ", ") + name;
  }
  return names;
}

TEST_CASE("a join: the id is kept, the session bound, the member welcomed, then it loads") {
  Head h;
  REQUIRE(h.join(1, good_join(1)));
  CHECK(order_of(h.last) == "keep, bind, Welcome, Load, AdmissionChanged");
}

TEST_CASE("a member that comes back: its old session is closed before the new one is bound") {
  Head h;
  const auto first = h.join(1, good_join(1));
  REQUIRE(first);
  Join again = good_join(1);
  again.held_id = first->node;
  again.held_cluster = "c1";
  REQUIRE(h.join(2, again));
  CHECK(order_of(h.last) == "close, bind, Welcome, Load");
}

TEST_CASE("a session is closed after it was told why") {
  Head h;
  Join other = good_join();
  other.checkpoint_hash = "abd";
  CHECK(!h.join(1, other));
  CHECK(order_of(h.last) == "Refused, close");
}

TEST_CASE("a loss: peers hear it, then the Router what is lost and what serves") {
  auto o = options();
  o.engine.min_devices = 2;
  Head h(o);
  const auto a = h.join(1, good_join(1)), b = h.join(2, good_join(2));
  REQUIRE((a && b));
  const auto version = h.s.placement()->version;
  h.from(*a, Loaded{version});
  h.from(*b, Loaded{version});
  h.from(*a, Activated{version});
  h.from(*b, Activated{version});
  SUBCASE("of one") {
    h.down(2);
    CHECK(order_of(h.last) == "MemberLost, ReplicasLost, ReplicasChanged, Load");
  }
  SUBCASE("of all, at the same time: no replica is moved to a node that goes too") {
    h.pass(limits::kLease);
    CHECK(h.s.members().empty());
    CHECK(order_of(h.last) == "close, MemberLost, close, ReplicasLost, ReplicasChanged");
    CHECK(h.router_hears<ReplicasLost>()->replicas.size() == 2);
    CHECK(h.router_hears<ReplicasChanged>()->replicas.empty());
  }
}

TEST_CASE("the end: answers and Stop go out first, sessions are closed, then the head may end") {
  Head h;
  const auto a = h.join(1, good_join(1));
  REQUIRE(a);
  h.up(2);
  h.from_session(2, ClientHello{kProtocol, "stop"});
  h.from_session(2, StopQuery{1});
  CHECK(order_of(h.last) == "StopReply, RequestsEnd, Stop");
  h.from(*a, Leave{"the cluster stops"});
  CHECK(order_of(h.last) == "close, close, keep, may end");
}

TEST_CASE("a cluster without members ends at once, after its answer") {
  Head h;
  h.up(2);
  h.from_session(2, ClientHello{kProtocol, "stop"});
  h.from_session(2, StopQuery{1});
  CHECK(order_of(h.last) == "StopReply, RequestsEnd, close, keep, may end");
}

TEST_CASE("a door of this process is answered with its own promise") {
  Head h;
  const auto reply = std::make_shared<std::promise<std::string>>();
  h.tell(StatusWanted{reply});
  REQUIRE(all<AnswerStatus>(h.last).size() == 1);
  CHECK(all<AnswerStatus>(h.last)[0].reply == reply);
}

TEST_CASE("once the head listens, the message says what to run on a worker") {
  auto o = options();
  o.join_line.clear();
  Head h(o);
  h.wait(0ms);  // its first turn
  h.tell(Listening{"troupe worker --head here:7000"});
  CHECK(contains(h.s.message(), "troupe worker --head here:7000"));
}

TEST_CASE("what the inbox does not take is refused and changes nothing") {
  Head h;
  const auto a = h.join(1, good_join(1));
  REQUIRE(a);
  h.from(*a, StepAbort{});
  const auto refusals = sent<Undeliverable>(h.last);
  REQUIRE(refusals.size() == 1);
  CHECK(refusals[0].error.code == ErrorCode::kRefused);
  CHECK(h.s.members().size() == 1);
}

}  // namespace
}  // namespace troupe
