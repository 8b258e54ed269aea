#include "actors/node_agent/serving.h"

#include <doctest/doctest.h>

#include <future>

#include "actors/control/caf_system.h"
#include "model/memory_estimate.h"

namespace troupe {
namespace {

using namespace std::chrono_literals;

constexpr const char* kModel = TROUPE_SOURCE_DIR "/tests/golden/v2-lite";
constexpr NodeId kSelf{1}, kPeer{2};
constexpr Incarnation kLife{11}, kPeerLife{12};
constexpr Numerics kNumerics = Numerics::kReference;

/// What a version gives this node: whole replicas, or the first stage of ones that the peer shares,
/// and experts of layer 1.
struct Part {
  std::vector<std::uint32_t> whole, shared;
  std::vector<std::int32_t> experts;
};

NodeAgentActions::Work work_of(std::uint64_t version, const Part& part) {
  NodeAgentActions::Work work;
  work.version = PlacementVersion{version};
  Placement& p = work.placement;
  p.version = work.version;
  p.numerics = kNumerics;
  work.engine.max_model_len = 64;
  work.peers = {{kPeer, kPeerLife, "", {}}};
  const auto replica = [&](std::uint32_t id) {
    p.replicas.push_back({id, kSelf, 8});
    work.replicas.push_back(p.replicas.back());
  };
  for (const auto id : part.whole) {
    replica(id);
    p.shards.push_back({id, 0, 0, 0, 2, {kSelf, 0}});
    work.shards.push_back(p.shards.back());
  }
  for (const auto id : part.shared) {
    replica(id);
    p.shards.push_back({id, 0, 0, 0, 0, {kSelf, 0}});
    work.shards.push_back(p.shards.back());
    p.shards.push_back({id, 1, 0, 1, 2, {kPeer, 0}});
  }
  LayerExperts layer{1, {}};
  for (const auto e : part.experts) layer.slots.push_back({e, {kSelf, 0}});
  p.experts = {layer};
  work.experts = {layer};
  return work;
}

struct Node {
  std::unique_ptr<CafSystem> caf = std::move(*CafSystem::make());
  Post post;
  std::vector<std::unique_ptr<Device>> devices;
  WeightStore weights;
  std::shared_ptr<const Checkpoint> checkpoint = *Checkpoint::open(kModel);
  std::unique_ptr<Serving> serving;

  explicit Node(std::uint64_t memory = std::uint64_t{1} << 30) {
    devices.push_back(std::make_unique<Device>(Device::Options{0, "cpu", memory, 1}));
    serving = std::make_unique<Serving>(
        NodeContext{caf->system(), post, devices, std::make_shared<ExpertCounter>()},
        Serving::Self{kSelf, kLife, {kHeadNode, Incarnation{1}, {ActorKind::kRouter, 0}}});
  }
  ~Node() { end(); }

  void end() {
    serving->stop();
    wait_ended();
  }
  /// Until what has been told to end holds nothing any more.
  void wait_ended() {
    for (const auto& actor : serving->take_ending()) REQUIRE(actor.stop_and_wait(5s));
    std::promise<void> drained;
    REQUIRE(device().submit([&] { drained.set_value(); }).ok());
    drained.get_future().wait();
  }
  Device& device() { return *devices[0]; }

  Status prepare(std::uint64_t version, const Part& part) {
    const std::atomic<bool> cancelled{false};
    auto work = work_of(version, part);
    auto loaded = weights.load(*checkpoint, work.version,
                               {kNumerics, work.shards, work.experts, {}},
                               PlacementVersion{version - 1}, {1, cancelled, {}});
    if (!loaded.ok()) return loaded.error();
    auto planned = serving->plan(std::move(work), checkpoint->config(), std::move(*loaded));
    if (!planned.ok()) return planned.error();
    if (const Status built = planned->build(); !built.ok()) return built;
    return serving->adopt(std::move(*planned));
  }
  void activate(std::uint64_t version) {
    auto settled = std::make_shared<std::promise<void>>();
    auto future = settled->get_future();
    serving->activate(PlacementVersion{version}, [settled] { settled->set_value(); });
    REQUIRE(future.wait_for(5s) == std::future_status::ready);
  }
  void make_active(std::uint64_t version, const Part& part) {
    const Status prepared = prepare(version, part);
    if (!prepared.ok()) FAIL(prepared.error().message);
    activate(version);
    serving->retire(PlacementVersion{version});
  }

  std::vector<std::int32_t> hosted() {
    std::vector<std::int32_t> ids;
    const auto set = device().experts();
    for (const auto& [key, expert] : set->experts()) ids.push_back(key.expert);
    return ids;
  }
  std::vector<std::uint32_t> replicas() const {
    std::vector<std::uint32_t> ids;
    for (const auto& report : serving->reports()) ids.push_back(report.replica);
    return ids;
  }
  std::uint64_t expert() const { return expert_bytes(checkpoint->config(), kNumerics); }
  std::uint64_t layers(std::int32_t first, std::int32_t last) const {
    return shard_bytes(checkpoint->config(), kNumerics, first, last + 1);
  }
  std::uint64_t cache(std::int32_t first, std::int32_t last) const {
    return kv_cache_bytes(checkpoint->config(), kNumerics, {first, last + 1, 8, 16});
  }
};

using Ids = std::vector<std::int32_t>;
using Replicas = std::vector<std::uint32_t>;

TEST_CASE("versions share what they have in common, and memory is counted once") {
  Node node;
  node.make_active(1, {{0}, {}, {0, 1}});
  const std::uint64_t first = node.layers(0, 2) + node.cache(0, 2) + 2 * node.expert();
  CHECK(node.device().memory_used() == first);
  CHECK(node.hosted() == Ids{0, 1});

  REQUIRE(node.prepare(2, {{0, 1}, {}, {1, 2}}).ok());
  CHECK(node.hosted() == Ids{0, 1, 2});
  CHECK(node.replicas() == Replicas{0, 1});
  CHECK(node.device().memory_used() == first + node.cache(0, 2) + node.expert());
  node.activate(2);
  CHECK(node.hosted() == Ids{0, 1, 2});
  node.serving->retire(PlacementVersion{2});
  CHECK(node.hosted() == Ids{1, 2});
  CHECK(node.device().memory_used() == first + node.cache(0, 2));

  SUBCASE("what the next one lacks ends when it is active") {
    REQUIRE(node.prepare(3, {{1}, {}, {2}}).ok());
    CHECK(node.replicas() == Replicas{0, 1});
    node.activate(3);
    CHECK(node.replicas() == Replicas{1});
    node.serving->retire(PlacementVersion{3});
    node.wait_ended();
    CHECK(node.device().memory_used() == node.layers(0, 2) + node.cache(0, 2) + node.expert());
  }
  SUBCASE("everything is given back in the end") {
    node.end();
    CHECK(node.device().memory_used() == 0);
    CHECK(node.hosted().empty());
  }
}

TEST_CASE("what does not fit leaves everything as it was") {
  Node probe;
  const std::uint64_t base =
      probe.layers(0, 2) + probe.cache(0, 2) + 2 * probe.expert();
  SUBCASE("a replica") {
    Node node(base + 1);
    node.make_active(1, {{0}, {}, {0, 1}});
    const Status prepared = node.prepare(2, {{0, 1}, {}, {0}});
    REQUIRE(!prepared.ok());
    CHECK(prepared.error().code == ErrorCode::kResourceExhausted);
    CHECK(node.replicas() == Replicas{0});
    CHECK(node.hosted() == Ids{0, 1});
    CHECK(node.device().memory_used() == base);
  }
  SUBCASE("experts, beside a replica that would") {
    Node node(base + probe.cache(0, 2) + probe.expert());
    node.make_active(1, {{0}, {}, {0, 1}});
    const Status prepared = node.prepare(2, {{0, 1}, {}, {1, 2, 3}});
    REQUIRE(!prepared.ok());
    CHECK(prepared.error().message.find("2 more experts") != std::string::npos);
    CHECK(node.replicas() == Replicas{0});
    CHECK(node.hosted() == Ids{0, 1});
    node.wait_ended();
    CHECK(node.device().memory_used() == base);
    REQUIRE(node.prepare(3, {{0, 1}, {}, {1, 2}}).ok());
  }
}

TEST_CASE("a version that will not serve takes only its own with it") {
  Node node;
  node.make_active(1, {{0}, {}, {0}});
  const std::uint64_t before = node.device().memory_used();
  REQUIRE(node.prepare(2, {{0, 1, 2}, {}, {0, 1}}).ok());
  CHECK(node.replicas() == Replicas{0, 1, 2});
  SUBCASE("for none") {
    node.serving->drop_pending(nullptr);
    CHECK(node.replicas() == Replicas{0});
    CHECK(node.hosted() == Ids{0});
    node.wait_ended();
    CHECK(node.device().memory_used() == before);
  }
  SUBCASE("for another that has some of it") {
    const auto next = work_of(3, {{0, 2}, {}, {0}});
    node.serving->drop_pending(&next);
    CHECK(node.replicas() == Replicas{0, 2});
    REQUIRE(node.prepare(3, {{0, 2}, {}, {0}}).ok());
    node.activate(3);
    CHECK(node.replicas() == Replicas{0, 2});
  }
}

TEST_CASE("a lost node ends the replicas that it had a part of, and no others") {
  Node node;
  node.make_active(1, {{0}, {1}, {0}});
  CHECK(node.replicas() == Replicas{0, 1});
  node.serving->member_lost(kPeer, Incarnation{5});  // an earlier life
  CHECK(node.replicas() == Replicas{0, 1});
  node.serving->member_lost(NodeId{9}, Incarnation{9});
  CHECK(node.replicas() == Replicas{0, 1});
  node.serving->member_lost(kPeer, kPeerLife);
  CHECK(node.replicas() == Replicas{0});
  CHECK(node.hosted() == Ids{0});
  node.wait_ended();
  CHECK(node.device().memory_used() ==
        node.layers(0, 2) + node.cache(0, 2) + node.expert());
}

TEST_CASE("a shard that ends settles too") {
  Node node;
  node.make_active(1, {{0}, {1}, {0}});
  REQUIRE(node.prepare(2, {{0}, {1}, {1}}).ok());
  auto settled = std::make_shared<std::promise<void>>();
  auto future = settled->get_future();
  node.serving->activate(PlacementVersion{2}, [settled] { settled->set_value(); });
  node.serving->member_lost(kPeer, kPeerLife);
  CHECK(future.wait_for(5s) == std::future_status::ready);
}

TEST_CASE("a node without shards settles at once") {
  Node node;
  node.make_active(1, {{}, {}, {0, 1}});
  CHECK(node.hosted() == Ids{0, 1});
}

TEST_CASE("the number of a living replica is not given to another") {
  Node node;
  node.make_active(1, {{0}, {}, {0}});
  const Status prepared = node.prepare(2, {{}, {0}, {0}});
  REQUIRE(!prepared.ok());
  CHECK(prepared.error().code == ErrorCode::kInvalidArgument);
  CHECK(node.replicas() == Replicas{0});
}

/// The answer to a question for expert 0 of layer 1.
MessagePtr ask(Node& node) {
  const Address asker{kSelf, kLife, {ActorKind::kLayerShard, 999}};
  auto answer = std::make_shared<std::promise<MessagePtr>>();
  auto future = answer->get_future();
  const ActorHandle actor = spawn_actor(node.caf->system(), [answer](const ActorHandle&) {
    return make_body([answer](const Envelope& e) { answer->set_value(e.message); }, [] {});
  });
  node.post.attach(asker, actor);
  Dispatch question;
  question.call = 7;
  question.version = PlacementVersion{1};
  question.layer = 1;
  question.rows = 1;
  question.pairs = {{0, 0}};
  question.payload = Payload::of(std::make_shared<Buffer>(
      static_cast<std::size_t>(node.checkpoint->config().hidden_size) *
      wire_size(wire_type(kNumerics))));
  const Address group{kSelf, kLife, {ActorKind::kExpertGroup, 0}};
  node.post.send({asker, group, message_of(std::move(question))});
  REQUIRE(future.wait_for(5s) == std::future_status::ready);
  node.post.detach(asker);
  actor.stop_and_wait(5s);
  return future.get();
}

TEST_CASE("the group of a failed device has nothing here any more") {
  Node node;
  node.make_active(1, {{}, {}, {0}});
  CHECK(std::holds_alternative<ExpertOutput>(*ask(node)));
  node.device().fail("an uncorrectable error");
  const MessagePtr answer = ask(node);
  REQUIRE(std::holds_alternative<NotHere>(*answer));
  CHECK(std::get<NotHere>(*answer).call == 7);
  CHECK(std::get<NotHere>(*answer).reason == "an uncorrectable error");
}

}  // namespace
}  // namespace troupe
