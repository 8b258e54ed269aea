#include <doctest/doctest.h>

#include <algorithm>

#include "runtime/standby_limits.h"
#include "tests/actors/worker/machine_stand.h"

namespace troupe {
namespace {

using namespace testing;

TEST_CASE("a version comes from the disk to serving") {
  Stand s;
  s.join();
  s.from_head(load_of(1, {0}, {4, 5}));
  REQUIRE(s.said<LoadProgress>().size() == 1);
  CHECK(s.said<LoadProgress>()[0].bytes_done == 0);
  CHECK(s.said<LoadProgress>()[0].bytes_total == kLayerBytes + 2 * kExpertBytes);
  const ReadOrder order = s.order();
  CHECK(order.model_path == "/models/m");
  CHECK(order.checkpoint_hash == "abc");
  CHECK(order.experts == std::vector<ExpertKey>{{1, 4}, {1, 5}});
  CHECK(order.shards == std::vector<LayerRange>{{0, 1}});
  s.hear(PieceRead{order.numerics, {1, 4}, {}, true, nullptr, nullptr});
  REQUIRE(s.said<LoadProgress>().size() == 1);
  CHECK(s.said<LoadProgress>()[0].bytes_done == kExpertBytes);
  ReadOrder rest = order;
  rest.experts.erase(rest.experts.begin());
  s.read(rest);
  CHECK(s.device.memory_used() == kLayerBytes + kCacheBytes + 2 * kExpertBytes);
  s.build();
  CHECK(s.wants<StartGroup>().size() == 1);
  CHECK(s.wants<StartShard>().size() == 1);
  CHECK(s.wants<StartReplica>().size() == 1);
  REQUIRE(s.said<Loaded>().size() == 1);
  CHECK(s.position<StartGroup>() < s.position<PublishExperts>());
  CHECK(s.position<PublishExperts>() < s.position<StartShard>());
  CHECK(s.position<StartReplica>() < s.position<SendAs>());  // it lives before the head knows
  CHECK(s.device.memory_used() == kLayerBytes + kCacheBytes + 2 * kExpertBytes);

  s.from_head(Activate{PlacementVersion{1}});
  CHECK(told<LayerShardInbox, RoutesChanged>(s.last).size() == 1);
  CHECK(s.said<Activated>().empty());
  s.settle(1, {0});
  REQUIRE(s.said<Activated>().size() == 1);
  CHECK(s.said<Activated>()[0].version == PlacementVersion{1});
  s.settle(1, {0});
  CHECK(s.said<Activated>().empty());
}

TEST_CASE("a load that does not fit is refused before any of it is read") {
  Stand s(kLayerBytes + kCacheBytes + kExpertBytes);
  s.join();
  s.serve(1, {0}, {4});
  SUBCASE("replicas") { s.from_head(load_of(2, {0, 1, 2}, {4})); }
  SUBCASE("experts beside one") { s.from_head(load_of(2, {0, 1}, {4, 5})); }
  CHECK(s.wants<ReadWeights>().empty());
  REQUIRE(s.said<LoadFailed>().size() == 1);
  CHECK(s.said<LoadFailed>()[0].error.code == ErrorCode::kResourceExhausted);
  CHECK(s.device.memory_used() == kExpertBytes);  // what actors had went with the effects
}

TEST_CASE("memory that is claimed for a load goes with it, read or not") {
  Stand s;
  s.join();
  s.serve(1, {0}, {4});
  const std::uint64_t serving = kExpertBytes;  // what actors had went with the effects
  s.from_head(load_of(2, {0, 1}, {4, 5}));
  REQUIRE(s.wants<ReadWeights>().size() == 1);
  CHECK(s.device.memory_used() == serving + kLayerBytes + kCacheBytes + kExpertBytes);
  SUBCASE("for another one") {
    s.from_head(load_of(3, {0}, {4, 6}));
    CHECK(s.device.memory_used() == serving + kExpertBytes);
  }
  SUBCASE("with a read that fails") {
    s.hear(PartRead{PlacementVersion{2}, false, not_found("the file is gone")});
    CHECK(s.device.memory_used() == serving);
  }
}

TEST_CASE("a load waits for the memory of one that is still being built") {
  Stand s(kLayerBytes + 2 * kCacheBytes + kExpertBytes);
  s.join();
  s.from_head(load_of(1, {0, 1}, {4}));
  s.read(s.order());
  auto preparation = s.wants<BuildPart>().at(0)->preparation;
  s.from_head(load_of(2, {2}, {4}));
  CHECK(s.wants<ReadWeights>().empty());
  CHECK(s.said<LoadFailed>().empty());
  REQUIRE(s.last.wake());
  preparation.reset();  // the build has ended, and said nothing
  s.now = *s.last.wake();
  s.wake_up();
  CHECK(s.said<LoadFailed>().empty());
  CHECK(s.wants<BuildPart>().size() + s.wants<ReadWeights>().size() == 1);
}

TEST_CASE("a node without shards settles in the turn of its activation") {
  Stand s;
  s.join();
  s.load(1, {}, {4});
  s.from_head(Activate{PlacementVersion{1}});
  CHECK(s.said<Activated>().size() == 1);
}

TEST_CASE("a load reads when actors of earlier versions have ended, or have taken too long") {
  Stand s;
  s.join();
  s.serve(1, {0, 1}, {4});
  s.load(2, {1}, {4});
  s.from_head(Activate{PlacementVersion{2}});
  const auto ended = s.ended();
  REQUIRE(ended.size() == 2);  // replica 0 and its shard
  s.settle(2, {1});
  s.from_head(Retire{PlacementVersion{2}});
  s.from_head(load_of(3, {1, 2}, {4}));
  CHECK(s.wants<ReadWeights>().empty());
  CHECK(s.said<LoadProgress>().empty());
  SUBCASE("when the last has ended") {
    s.hear(Ended{ended[0]});
    CHECK(s.wants<ReadWeights>().empty());
    s.hear(Ended{ended[1]});
    CHECK(s.wants<ReadWeights>().size() == 1);
    CHECK(s.position<SendAs>() < s.position<ReadWeights>());
  }
  SUBCASE("when it has taken too long, once") {
    REQUIRE(s.last.wake());
    const TimePoint deadline = s.now + limits::kActorStopDeadline + limits::kStepDeadline / 2;
    while (s.now < deadline) {
      CHECK(s.wants<ReadWeights>().empty());
      s.now = std::min(*s.last.wake(), deadline);
      s.wake_up();
    }
    CHECK(s.wants<ReadWeights>().size() == 1);
    s.from_head(load_of(4, {1, 3}, {4}));  // nobody is waited for twice
    CHECK(s.wants<ReadWeights>().size() == 1);
  }
  SUBCASE("a newer load waits for them as well") {
    s.from_head(load_of(4, {1, 3}, {4}));
    CHECK(s.wants<ReadWeights>().empty());
    s.hear(Ended{ended[0]});
    s.hear(Ended{ended[1]});
    CHECK(s.order().version == PlacementVersion{4});
  }
  SUBCASE("the end of the membership ends the wait") {
    s.hear(HeadDown{"reset", false});
    s.hear(Ended{ended[0]});
    s.hear(Ended{ended[1]});
    CHECK(s.wants<ReadWeights>().empty());
  }
}

TEST_CASE("a head that comes back is offered what is held of its model, of no other") {
  Stand s;
  s.join();
  s.serve(1, {0}, {4, 5});
  s.hear(HeadDown{"reset", false});
  s.now += limits::kKeepFor / 2;
  s.wake_up();
  s.hear(HeadUp{});
  std::size_t held = 0;
  SUBCASE("the same") {
    s.from_head(Greeting{kProtocol, "c1", "0.1.0", "/models/m", "abc", std::nullopt});
    held = 2;
  }
  SUBCASE("one in another folder, with the same headers") {
    s.from_head(Greeting{kProtocol, "c1", "0.1.0", "/models/tuned", "abc", std::nullopt});
    REQUIRE(s.wants<InspectCheckpoint>().size() == 1);
    s.wake_up();
    s.hear(
        CheckpointInspected{"/models/tuned", InspectedCheckpoint{"abc", s.sizes, "/models/tuned"}});
  }
  SUBCASE("one where a link leads elsewhere now, with the same headers") {
    s.from_head(Greeting{kProtocol, "c1", "0.1.0", "/models/m", "abc", std::nullopt, 7});
    REQUIRE(s.wants<InspectCheckpoint>().size() == 1);
    s.wake_up();
    s.hear(CheckpointInspected{"/models/m", InspectedCheckpoint{"abc", s.sizes, "/disk/tuned"}});
  }
  SUBCASE("one with other headers") {
    s.from_head(Greeting{kProtocol, "c1", "0.1.0", "/models/m", "xyz", std::nullopt});
    REQUIRE(s.wants<InspectCheckpoint>().size() == 1);
    s.wake_up();
    s.hear(CheckpointInspected{"/models/m", InspectedCheckpoint{"xyz", s.sizes, "/models/m"}});
  }
  REQUIRE(s.said<Join>().size() == 1);
  const Join join = s.said<Join>()[0];
  CHECK(join.held_shards.size() == (held > 0 ? 1 : 0));
  CHECK((join.held_weight_bytes > 0) == (held > 0));
  std::size_t experts = 0;
  for (const auto& layer : join.held_experts) experts += layer.experts.size();
  CHECK(experts == held);
}

TEST_CASE("an inspection that answers late touches nothing that serves") {
  Stand s;
  s.join();
  s.serve(1, {0}, {4});
  s.hear(CheckpointInspected{"/models/m", InspectedCheckpoint{"xyz", s.sizes, "/models/m"}});
  s.from_head(load_of(2, {0}, {4, 5}));
  CHECK(s.order().experts == std::vector<ExpertKey>{{1, 5}});  // the rest is held
}

TEST_CASE("what a superseded load still brings starts nothing") {
  Stand s;
  s.join();
  s.from_head(load_of(1, {0}, {4}));
  const ReadOrder first = s.order();
  SUBCASE("a part that was read") {
    s.from_head(load_of(2, {1}, {4}));
    s.hear(PartRead{first.version, false, {}});
    CHECK(s.wants<BuildPart>().empty());
    s.hear(PartRead{first.version, false, corrupt("bad")});
    CHECK(s.said<LoadFailed>().empty());
  }
  SUBCASE("a part that was built") {
    s.read(first);
    const auto preparation = s.wants<BuildPart>().at(0)->preparation;
    REQUIRE(preparation->build().ok());
    s.from_head(load_of(2, {1}, {4}));
    s.hear(PartBuilt{preparation, {}});
    CHECK(s.wants<StartShard>().empty());
    CHECK(s.said<Loaded>().empty());
  }
  SUBCASE("a part of an earlier membership") {
    s.read(first);
    const auto preparation = s.wants<BuildPart>().at(0)->preparation;
    REQUIRE(preparation->build().ok());
    s.hear(HeadDown{"reset", false});
    s.hear(PartBuilt{preparation, {}});
    CHECK(s.wants<StartShard>().empty());
  }
}

TEST_CASE("a load that cannot be done is said to have failed, and gives back what it claimed") {
  const std::uint64_t room = kLayerBytes + kCacheBytes + kExpertBytes;
  Stand s(room);
  s.join();
  const char* why = "";
  SUBCASE("reading") {
    s.from_head(load_of(1, {0}, {4}));
    s.hear(PartRead{PlacementVersion{1}, false, corrupt("bad tensor")});
    why = "bad tensor";
  }
  SUBCASE("pieces that never came") {
    s.from_head(load_of(1, {0}, {4}));
    s.hear(PartRead{PlacementVersion{1}, false, {}});
    why = "lost on their way";
  }
  SUBCASE("memory of caches") {
    s.from_head(load_of(1, {0, 1}, {4}));
    why = "KV cache";
  }
  SUBCASE("building") {
    s.factory.fails = true;
    s.from_head(load_of(1, {0}, {4}));
    s.read(s.order());
    s.build();
    why = "no memory for a cache";
  }
  SUBCASE("memory of experts") {
    s.from_head(load_of(1, {0}, {4, 5}));
    why = "2 more experts";
  }
  REQUIRE(s.said<LoadFailed>().size() == 1);
  CHECK(s.said<LoadFailed>()[0].error.message.find(why) != std::string::npos);
  CHECK(s.wants<StartShard>().empty());
  s.last = {};
  CHECK(s.device.memory_used() == 0);
}

TEST_CASE("weights that a retired version alone had are freed after they are hosted no more") {
  Stand s(1 << 20, 2 * kExpertBytes);
  s.join();
  s.serve(1, {0}, {4, 5});
  s.load(2, {0}, {5});
  s.from_head(Activate{PlacementVersion{2}});
  s.settle(2, {0});
  s.from_head(Retire{PlacementVersion{2}});
  REQUIRE(s.wants<FreeWeights>().size() == 1);
  CHECK(s.wants<FreeWeights>()[0]->garbage.size() == 1);
  CHECK(s.position<PublishExperts>() < s.position<FreeWeights>());
  CHECK(s.wants<ReadWeights>().empty());
}

TEST_CASE("the second tier is read after a retirement; its failure is only logged") {
  Stand s(1 << 20, 2 * kExpertBytes);
  s.join();
  Load load = load_of(1, {0}, {4});
  load.placement.tier = {{1, {{7, {kSelf, 0}}, {8, {kSelf, 0}}, {9, {kSelf, 0}}}}};
  s.from_head(load);
  s.read(s.order());
  s.build();
  s.from_head(Activate{PlacementVersion{1}});
  s.settle(1, {0});
  s.from_head(Retire{PlacementVersion{1}});
  const ReadOrder tier = s.order();
  CHECK(tier.tier);
  CHECK(tier.model_path == "/models/m");
  CHECK(tier.experts == std::vector<ExpertKey>{{1, 7}, {1, 8}});
  s.hear(PartRead{PlacementVersion{1}, true, corrupt("bad tensor")});
  CHECK(s.said<LoadFailed>().empty());
  REQUIRE(s.wants<LogLine>().size() == 1);
  CHECK(s.wants<LogLine>()[0]->level == LogLine::Level::kWarning);
}

TEST_CASE("the end of a membership ends all actors, and leaves the address, before the session") {
  Stand s;
  s.join();
  s.serve(1, {0}, {4});
  s.hear(LeaveCluster{"SIGTERM"});
  CHECK(s.ended().size() == 3);
  CHECK(s.said<Leave>().size() == 1);
  CHECK(s.position<SendAs>() < s.position<EndActor>());
  CHECK(s.position<EndActor>() < s.position<LeaveAddress>());
  s.hear(HeadDown{"closed", false});
  REQUIRE(s.wants<WorkerExit>().size() == 1);
  CHECK(s.position<CloseHead>() < s.position<WorkerExit>());
  CHECK(s.position<CancelReading>() < s.position<WorkerExit>());
}

TEST_CASE("without a head for too long all memory is given back") {
  Stand s;
  s.join();
  s.serve(1, {0}, {4});
  s.hear(HeadDown{"closed", false});
  CHECK(s.machine.weights().held_bytes() > 0);
  CHECK(s.device.memory_used() > 0);
  s.now += limits::kKeepFor;
  s.wake_up();
  CHECK(s.ended().size() == 3);
  CHECK(s.machine.weights().held_bytes() == 0);
  CHECK(s.device.memory_used() == 0);
  REQUIRE(s.wants<FreeWeights>().size() == 1);
  CHECK(s.wants<FreeWeights>()[0]->garbage.size() == 2);
  CHECK(s.position<EndActor>() < s.position<FreeWeights>());
  CHECK(s.wants<WorkerExit>().empty());
}

TEST_CASE("a device that fails is logged, and the head hears of it at once") {
  Stand s;
  s.join();
  s.device.fail("an uncorrectable error");
  s.hear(DeviceFailed{0});
  REQUIRE(s.wants<LogLine>().size() == 1);
  CHECK(s.wants<LogLine>()[0]->text.find("uncorrectable") != std::string::npos);
  REQUIRE(s.said<Renew>().size() == 1);
  CHECK(s.said<Renew>()[0].devices[0].failed == "an uncorrectable error");
}

TEST_CASE("a processor that stands still is a hung node, an accelerator beside others is none") {
  FakeDevice other(1 << 20);
  Stand s(1 << 20, 0, {&other});
  const auto renews = [&] {
    s.now += limits::kRenewEvery;
    s.wake_up();
    return !s.said<Renew>().empty();
  };
  s.join();
  CHECK(renews());
  other.alive = false;
  SUBCASE("a processor") { CHECK(!renews()); }
  SUBCASE("an accelerator") {
    s.device.accelerator = other.accelerator = true;
    CHECK(renews());
    s.device.alive = false;
    CHECK(!renews());  // nobody speaks for the node
    other.fail("it has not ended within 5 s what it was given");
    CHECK(!renews());  // nor does one that is out
    s.device.fail("nor has this one");
    CHECK(renews());
  }
  SUBCASE("one that was taken out") {
    other.fail("a wrong result");
    CHECK(renews());
  }
}

TEST_CASE("devices are probed once a second, by a member only") {
  Stand s;
  s.wake_up();
  CHECK(s.wants<ProbeDevices>().empty());
  Stand m;
  m.join();
  m.wake_up();
  CHECK(m.wants<ProbeDevices>().size() == 1);
  m.now += 500ms;
  m.wake_up();
  CHECK(m.wants<ProbeDevices>().empty());
  m.now += 500ms;
  m.wake_up();
  CHECK(m.wants<ProbeDevices>().size() == 1);
}

TEST_CASE("it shows that it is alive once a second, member or not, while no device hangs") {
  Stand s;
  const auto shows = [&s] {
    s.wake_up();
    REQUIRE(s.last.wake());
    CHECK(*s.last.wake() <= s.now + 1s);
    return s.wants<ShowAlive>().size() == 1;
  };
  CHECK(shows());  // it seeks a head
  s.join();
  s.now += 1s;
  CHECK(shows());
  CHECK(s.said<Renew>().size() == 1);
  s.device.alive = false;
  s.now += 1s;
  CHECK(!shows());
  CHECK(s.said<Renew>().empty());
  s.device.alive = true;
  s.now += 1s;
  CHECK(shows());
}

}  // namespace
}  // namespace troupe
