#include "transport/fabric/in_process.h"

#include "tests/transport/fabric/support.h"

namespace troupe::transport::testing {
namespace {

struct Member {
  Member(InProcessHub& hub, std::uint32_t id, FabricOptions options = {}) : self(key(id)) {
    options.self = self;
    fabric = hub.make(options, events);
  }
  PeerKey self;
  Recorder events;
  std::unique_ptr<Fabric> fabric;
};

void join(Member& low, Member& high) {
  REQUIRE(low.fabric->connect(high.self, high.fabric->address(), token(1)).ok());
  REQUIRE(high.fabric->expect(low.self, token(1)).ok());
  REQUIRE(low.events.wait_up(high.self));
  REQUIRE(high.events.wait_up(low.self));
}

TEST_CASE("in process: frames are handed over by reference, in order") {
  InProcessHub hub;
  Member a(hub, 1), b(hub, 2);
  join(a, b);
  const Frame sent = frame(8, 1000, 1);
  REQUIRE(a.fabric->send(b.self, sent).ok());
  for (std::uint64_t i = 0; i < 100; ++i) REQUIRE(a.fabric->send(b.self, frame(8, 8, i)).ok());
  REQUIRE(b.events.wait_frames(a.self, 101));
  const auto got = b.events.take_frames(a.self);
  CHECK(got[0].payload.bytes.data() == sent.payload.bytes.data());
  for (std::uint64_t i = 0; i < 100; ++i) CHECK(same(got[i + 1].header, frame(8, 8, i).header));
  CHECK(hub.wait_idle(1s));
  CHECK(a.fabric->stats().bytes_unsent == 0);
}

TEST_CASE("in process: cuts, deaths, tokens, fences and deadlines are as on the network") {
  InProcessHub hub;
  FabricOptions quick;
  quick.connect_deadline = 50ms;
  Member a(hub, 1, quick);
  auto b = std::make_unique<Member>(hub, 2);
  Member c(hub, 3);
  join(a, *b);
  join(*b, c);
  join(a, c);
  hub.cut(NodeId{1}, NodeId{3});
  CHECK(a.events.wait_down(c.self));
  CHECK(c.events.wait_down(a.self));
  CHECK_FALSE(a.fabric->send(c.self, frame(1, 1, 1)).ok());
  const PeerKey gone = b->self;
  b.reset();
  CHECK(a.events.wait_down(gone));
  CHECK(c.events.wait_down(gone));
  CHECK_FALSE(a.fabric->send(gone, frame(1, 1, 1)).ok());
  a.fabric->forget(gone, true);
  CHECK_FALSE(a.fabric->connect(gone, "in-process:node-2#1", token(1)).ok());
  Member d(hub, 4);
  REQUIRE(d.fabric->expect(a.self, token(1)).ok());
  REQUIRE(a.fabric->connect(d.self, d.fabric->address(), token(2)).ok());
  CHECK(a.events.wait_down(d.self));
  CHECK(d.fabric->stats().strangers_refused == 1);
}

TEST_CASE("in process: delays reorder links, never frames of one link") {
  FaultPlan faults;
  faults.seed = 3;
  faults.delay_max = 2ms;
  InProcessHub hub(faults);
  Member a(hub, 1), b(hub, 2), c(hub, 3);
  join(a, c);
  join(b, c);
  for (std::uint64_t i = 0; i < 50; ++i) {
    REQUIRE(a.fabric->send(c.self, frame(8, 0, i)).ok());
    REQUIRE(b.fabric->send(c.self, frame(8, 0, i)).ok());
  }
  for (Member* from : {&a, &b}) {
    REQUIRE(c.events.wait_frames(from->self, 50));
    const auto got = c.events.take_frames(from->self);
    for (std::uint64_t i = 0; i < 50; ++i) CHECK(same(got[i].header, frame(8, 0, i).header));
  }
}

TEST_CASE("in process: the seed decides which frame breaks the link") {
  const auto broken_at = [](std::uint64_t seed) {
    FaultPlan faults;
    faults.seed = seed;
    faults.drop_connection = 0.05;
    InProcessHub hub(faults);
    Member a(hub, 1), b(hub, 2);
    join(a, b);
    int sent = 0;
    while (sent < 10'000 && a.fabric->send(b.self, frame(8, 0, 1)).ok()) ++sent;
    CHECK(a.events.wait_down(b.self));
    CHECK(b.events.wait_down(a.self));
    CHECK(b.events.take_frames(a.self).size() == static_cast<std::size_t>(sent) - 1);
    return sent;
  };
  CHECK(broken_at(1) == broken_at(1));
  CHECK(broken_at(1) != broken_at(2));
}

}  // namespace
}  // namespace troupe::transport::testing
