#include "actors/worker/worker_machine.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "tests/actors/effects.h"
#include "tests/actors/worker/fake_sizes.h"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using testing::all;
using testing::told;

constexpr NodeId kSelf{2}, kPeer{3};
constexpr Incarnation kHeadLife{50}, kLife{51}, kPeerLife{63};
using Sizes = testing::FakeSizes;
constexpr std::uint64_t kExpertBytes = Sizes::kExpert, kCacheBytes = Sizes::kCache;
constexpr std::uint64_t kLayerBytes = 2 * Sizes::kLayer;  // of a whole replica

struct FakeDevice final : Device {
  explicit FakeDevice(std::uint64_t memory) : Device({0, "cpu", memory, 1}) {}
  Status submit(std::function<void()>) override { return {}; }
  bool makes_progress(TimePoint, Duration) override { return alive; }
  void probe() override {}
  std::uint32_t probe_us() const override { return 100; }
  float take_utilization(TimePoint) override { return 0.5f; }
  bool alive = true;
};

/// A compute that only holds its memory.
struct FakeCompute final : ShardCompute {
  explicit FakeCompute(ShardSpec s) : spec(std::move(s)) {}
  ComputeOutcome begin(const BeginStep&, const OnCut&) override { return {}; }
  ComputeOutcome resume(const ResumeStep&, const OnCut&) override { return {}; }
  void release(StepId) override {}
  ShardSpec spec;
};

struct FakePass final : ExpertPass {
  std::vector<PassAnswer> run(std::vector<Envelope>) override { return {}; }
};

struct Factory final : ComputeFactory {
  Result<std::unique_ptr<ShardCompute>> make_shard(ShardSpec spec) override {
    if (fails) return resource_exhausted("no memory for a cache");
    std::unique_ptr<ShardCompute> made = std::make_unique<FakeCompute>(std::move(spec));
    return made;
  }
  Result<MadePass> make_pass(const PassSpec&) override {
    return MadePass{std::make_unique<FakePass>(), 4};
  }
  bool fails = false;
};

/// Replicas of this node, whole ones, and experts of layer 1.
Load load_of(std::uint64_t version, std::vector<std::uint32_t> replicas,
             std::vector<std::int32_t> experts) {
  Load load;
  load.placement.version = PlacementVersion{version};
  for (const auto id : replicas) {
    load.placement.replicas.push_back({id, kSelf, 10});
    load.placement.shards.push_back({id, 0, 0, 0, 1, {kSelf, 0}});
  }
  load.placement.experts = {{1, {}}};
  for (const auto e : experts) load.placement.experts[0].slots.push_back({e, {kSelf, 0}});
  return load;
}

/// A machine, what it wants in the last turn, and what lives by its wishes.
struct Stand {
  FakeDevice device;
  Factory factory;
  WorkerMachine machine;
  TimePoint now = TimePoint{} + 1h;
  WorkerEffects last;
  std::shared_ptr<const Sizes> sizes = std::make_shared<const Sizes>();

  explicit Stand(std::uint64_t memory = 1 << 20, std::uint64_t tier_memory = 0)
      : device(memory),
        machine(options(tier_memory), {{&device}, &factory, std::make_shared<ExpertCounter>()}) {}

  static NodeAgentOptions options(std::uint64_t tier_memory) {
    NodeAgentOptions o;
    o.head = "head:6379";
    o.numerics = {Numerics::kReference};
    o.devices = {{"cpu", 1 << 20, 1}};
    o.tier_memory = tier_memory;
    return o;
  }

  void checked() { CHECK(machine.violation() == ""); }
  void wake_up() {
    last = {};
    wake(machine, now, last);
    checked();
  }
  template <class T>
  void hear(T local) {
    last = {};
    turn(machine, std::move(local), now, last);
    checked();
  }
  template <class T>
  void from_head(T message) {
    last = {};
    turn(machine,
         Envelope{{kHeadNode, kHeadLife, {ActorKind::kSupervisor, 0}},
                  {kSelf, kLife, {ActorKind::kNodeAgent, 0}},
                  message_of(std::move(message))},
         now, last);
    checked();
  }
  template <class E>
  std::vector<const E*> wants() const {
    std::vector<const E*> found;
    for (const auto& effect : last.list())
      if (const auto* e = std::get_if<E>(&effect)) found.push_back(e);
    return found;
  }
  template <class E>
  int position() const {
    for (std::size_t i = 0; i < last.list().size(); ++i)
      if (std::holds_alternative<E>(last.list()[i])) return static_cast<int>(i);
    return -1;
  }
  template <class T>
  std::vector<T> said() const {
    std::vector<T> found;
    for (const auto* send : wants<SendAs>())
      if (const auto* message = std::get_if<T>(send->envelope.message.get()))
        found.push_back(*message);
    return found;
  }
  void join() {
    wake_up();
    hear(HeadUp{});
    from_head(Greeting{kProtocol, "c1", "0.1.0", "/models/m", "abc", std::nullopt});
    REQUIRE(wants<InspectCheckpoint>().size() == 1);
    hear(CheckpointInspected{InspectedCheckpoint{"abc", sizes, "/models/m"}});
    REQUIRE(said<Join>().size() == 1);
    from_head(Welcome{kSelf, kLife, 60'000});
    REQUIRE(wants<JoinedCluster>().size() == 1);
  }
  ReadOrder order() const {
    const auto reads = wants<ReadWeights>();
    REQUIRE(reads.size() == 1);
    return reads[0]->order;
  }
  /// Reads all of an order, and says so.
  void read(const ReadOrder& order) {
    for (const auto& key : order.experts)
      hear(PieceRead{order.numerics, key, {}, true, nullptr, nullptr});
    for (const auto& layers : order.shards)
      hear(PieceRead{order.numerics, {}, layers, false, nullptr, nullptr});
    hear(PartRead{order.version, order.tier, {}});
  }
  /// Builds what is to be built, and says so.
  void build() {
    const auto builds = wants<BuildPart>();
    REQUIRE(builds.size() == 1);
    const auto preparation = builds[0]->preparation;
    const Status built = preparation->build();
    hear(PartBuilt{preparation, built});
  }
  void load(std::uint64_t version, std::vector<std::uint32_t> replicas,
            std::vector<std::int32_t> experts) {
    from_head(load_of(version, std::move(replicas), std::move(experts)));
    read(order());
    build();
    REQUIRE(said<Loaded>().size() == 1);
  }
  void settle(std::uint64_t version, std::vector<std::uint32_t> replicas) {
    for (const auto id : replicas)
      hear(RoutesSettled{shard_index(id, 0, 0), PlacementVersion{version}});
  }
  void serve(std::uint64_t version, std::vector<std::uint32_t> replicas,
             std::vector<std::int32_t> experts) {
    load(version, replicas, std::move(experts));
    from_head(Activate{PlacementVersion{version}});
    settle(version, replicas);
    from_head(Retire{PlacementVersion{version}});
  }
  /// The actors that the last turn ended.
  std::vector<Address> ended() const {
    std::vector<Address> found;
    for (const auto* end : wants<EndActor>()) found.push_back(end->actor);
    return found;
  }
};

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
  CHECK(s.device.memory_used() == kLayerBytes + kCacheBytes);
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
  s.now += 60s;
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
    s.hear(CheckpointInspected{InspectedCheckpoint{"abc", s.sizes, "/models/tuned"}});
  }
  SUBCASE("one with other headers") {
    s.from_head(Greeting{kProtocol, "c1", "0.1.0", "/models/m", "xyz", std::nullopt});
    REQUIRE(s.wants<InspectCheckpoint>().size() == 1);
    s.wake_up();
    s.hear(CheckpointInspected{InspectedCheckpoint{"xyz", s.sizes, "/models/m"}});
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
  s.hear(CheckpointInspected{InspectedCheckpoint{"xyz", s.sizes, "/models/m"}});
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
    s.read(s.order());
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
    s.read(s.order());
    s.build();
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

}  // namespace
}  // namespace troupe
