#include "tests/actors/node_agent/agent_under_test.h"

using namespace troupe;

namespace {

MeasureLink order(std::uint64_t number, const Peer& peer) {
  return {number, peer.id, peer.incarnation, {1024}};
}

void result(AgentUnderTest& a, std::uint64_t number) {
  a.call([&](auto& agent, auto& out) {
    agent.on(LinkResult{{number, {5, 1, 2, {}}, {}}}, a.now, out);
  });
}

}  // namespace

TEST_CASE("a connection that is up is measured, once") {
  ServingAgent a;
  a.from_head(order(4, kThree));
  REQUIRE(a.last.has<MeasurePeer>());
  CHECK(!a.sent<LinkMeasured>());
  result(a, 3);  // of an older one
  CHECK(!a.sent<LinkMeasured>());
  result(a, 4);
  REQUIRE(a.sent<LinkMeasured>());
  CHECK(a.sent<LinkMeasured>()->number == 4);
  CHECK(!a.sent<LinkMeasured>()->error);
  result(a, 4);
  CHECK(!a.sent<LinkMeasured>());
}

TEST_CASE("why a connection is not measured") {
  ServingAgent a;
  a.from_head(order(4, {NodeId{9}, Incarnation{69}, "b9", {}}));
  REQUIRE(a.sent<LinkMeasured>());
  CHECK(a.sent<LinkMeasured>()->error->code == ErrorCode::kNotFound);
  a.from_head(order(5, {kThree.id, Incarnation{1}, "b3", {}}));  // an older life
  CHECK(a.sent<LinkMeasured>()->error->code == ErrorCode::kNotFound);
  a.peer_down(3, 63);
  a.from_head(order(6, kThree));
  REQUIRE(a.sent<LinkMeasured>());
  CHECK(contains(a.sent<LinkMeasured>()->error->message, "down"));
  CHECK(!a.last.has<MeasurePeer>());
}

TEST_CASE("a measurement ends when it lasts too long, is not wanted, or the membership is over") {
  ServingAgent a;
  a.from_head(order(4, kThree));
  SUBCASE("too long") {
    a.progress.measuring = "after 3 round trips";
    std::optional<LinkMeasured> late;
    for (const TimePoint end = a.now + LinkMeasuring::kDeadline + 1s; a.now < end && !late;) {
      a.signs_of_life({{1, 61}, {3, 63}});
      a.wait(50ms);
      late = a.sent<LinkMeasured>();
      const bool ended = a.last.has<EndMeasuring>();
      CHECK(ended == late.has_value());
      if (const auto renew = a.sent<Renew>()) a.from_head(Renewed{renew->sequence});
    }
    REQUIRE(late);
    CHECK(late->error->code == ErrorCode::kDeadlineExceeded);
    CHECK(contains(late->error->message, "after 3 round trips"));
  }
  SUBCASE("not wanted") {
    a.from_head(EndMeasure{3});
    CHECK(!a.last.has<EndMeasuring>());
    a.from_head(EndMeasure{4});
    CHECK(a.last.has<EndMeasuring>());
    result(a, 4);
    CHECK(!a.sent<LinkMeasured>());
  }
  SUBCASE("another takes its place") {
    a.from_head(order(5, kOne));
    REQUIRE(a.last.first<EndMeasuring>());
    CHECK(a.last.first<EndMeasuring>()->number == 4);
    CHECK(a.last.first<MeasurePeer>()->order.number == 5);
  }
  SUBCASE("the membership") {
    a.down();
    CHECK(a.last.has<EndMeasuring>());
  }
}
