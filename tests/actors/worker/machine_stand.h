#pragma once

#include <doctest/doctest.h>

#include <optional>
#include <vector>

#include "actors/worker/worker_machine.h"
#include "tests/actors/effects.h"
#include "tests/actors/worker/fake_sizes.h"

/// A WorkerMachine between a head and hands that the test plays.
namespace troupe::testing {

using namespace std::chrono_literals;

inline constexpr NodeId kSelf{2}, kPeer{3};
inline constexpr Incarnation kHeadLife{50}, kLife{51}, kPeerLife{63};
using Sizes = FakeSizes;
inline constexpr std::uint64_t kExpertBytes = Sizes::kExpert, kCacheBytes = Sizes::kCache;
inline constexpr std::uint64_t kLayerBytes = 2 * Sizes::kLayer;  // of a whole replica

struct FakeDevice final : Device {
  explicit FakeDevice(std::uint64_t memory) : Device({.memory_total = memory}) {}
  Status submit(std::function<void()>, Room) override { return {}; }
  bool makes_progress(TimePoint, Duration) override { return alive; }
  void probe() override {}
  std::uint32_t probe_us() const override { return 100; }
  float take_utilization(TimePoint) override { return 0.5f; }
  bool has_own_memory() const override { return accelerator; }
  bool alive = true, accelerator = false;
};

/// A compute that only holds its memory.
struct FakeCompute final : ShardCompute {
  explicit FakeCompute(ShardSpec s) : spec(std::move(s)) {}
  void use(std::shared_ptr<Collective>) override {}
  void deal(std::shared_ptr<const ExpertRanks>) override {}
  bool hears_ranks(TimePoint) const override { return true; }
  void begin(const BeginStep&, const std::shared_ptr<ShardNews>&) override {}
  void resume(ResumeStep, const std::shared_ptr<ShardNews>&) override {}
  void release(StepId) override {}
  void give_up(StepId) override {}
  void end() override {}
  ShardSpec spec;
};

struct FakePass final : ExpertPass {
  void run(std::span<Envelope>, const std::shared_ptr<PassNews>&) override {}
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
inline Load load_of(std::uint64_t version, std::vector<std::uint32_t> replicas,
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
      : Stand(memory, tier_memory, {}) {}
  /// With devices beside the first.
  Stand(std::uint64_t memory, std::uint64_t tier_memory, std::vector<Device*> more)
      : device(memory), machine(options(tier_memory), context(std::move(more))) {}

  NodeContext context(std::vector<Device*> devices) {
    devices.insert(devices.begin(), &device);
    return {std::move(devices), &factory, std::make_shared<ExpertCounter>()};
  }

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
    hear(CheckpointInspected{"/models/m", InspectedCheckpoint{"abc", sizes, "/models/m"}});
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

}  // namespace troupe::testing
