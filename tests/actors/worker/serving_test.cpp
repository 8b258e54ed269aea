#include "actors/worker/serving.h"

#include <doctest/doctest.h>

#include <numeric>
#include <set>

#include "actors/base/caf_host.h"
#include "actors/control/caf_system.h"
#include "actors/worker/checkpoint_model.h"
#include "actors/worker/model_factory.h"
#include "actors/worker/worker_hands.h"
#include "model/checkpoint.h"
#include "model/kv_cache.h"
#include "model/spec/sizes.h"
#include "model/weights.h"
#include "runtime/overloaded.h"
#include "tests/actors/effects.h"
#include "tests/actors/mail_queue.h"
#include "tests/source_path.h"

namespace troupe {
namespace {

constexpr NodeId kSelf{1}, kPeer{2};
constexpr Incarnation kLife{11}, kPeerLife{12};
constexpr Numerics kNumerics = Numerics::kReference;

/// What a version gives this node: whole replicas, or the first stage of ones that the peer shares,
/// and experts of layer 1, or of both layers that have some.
struct Part {
  std::vector<std::uint32_t> whole, shared;
  std::vector<std::int32_t> experts;
  bool in_layer_2_too = false;
};

std::shared_ptr<VersionWork> work_of(std::uint64_t version, const Part& part) {
  auto made = std::make_shared<VersionWork>();
  VersionWork& work = *made;
  Placement& p = work.placement;
  p.version = work.version = PlacementVersion{version};
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
  if (part.in_layer_2_too) p.experts.push_back({2, layer.slots});
  work.experts = p.experts;
  return made;
}

/// A node's actors, real ones, and its agent's mailbox.
struct Node {
  std::unique_ptr<CafSystem> caf = std::move(*CafSystem::make());
  Post post;
  CpuDevice cpu;
  ModelFactory factory{{&cpu}};
  std::shared_ptr<const Checkpoint> checkpoint =
      *Checkpoint::open(testing::source_path("tests/golden/v2-lite"));
  std::shared_ptr<const ModelSizes> sizes = std::make_shared<const CheckpointModel>(
      std::shared_ptr<const ModelSpec>(checkpoint, &checkpoint->spec()), not_found("No words."));
  WeightStore weights{{}};
  CafHost host{caf->system(), post};
  const Ref<NodeAgentInbox> agent{kSelf, kLife};
  std::shared_ptr<testing::MailQueue> mail = std::make_shared<testing::MailQueue>();
  ActorHands hands{host, agent, {&cpu}};
  Serving serving{{{&cpu}, &factory, std::make_shared<ExpertCounter>()},
                  {kSelf, kLife, {kHeadNode, Incarnation{1}}}};
  std::multiset<Address> ending;

  explicit Node(std::uint64_t memory = std::uint64_t{1} << 30) : cpu({.memory_total = memory}) {
    weights.use({"golden", sizes, ""});
    post.attach(agent.address, mail);
  }
  ~Node() { end(); }

  /// Carries out what Serving wants, as the worker's hands do.
  template <class Call>
  auto call(const Call& c) {
    WorkerEffects effects;
    const auto carry_out_all = [&] {
      CHECK(serving.violation() == "");
      for (auto& effect : effects.take()) std::visit([this](auto& e) { carry_out(e); }, effect);
      for (const auto& actor : serving.take_ending()) ending.insert(actor);
    };
    if constexpr (std::is_void_v<decltype(c(effects))>) {
      c(effects);
      carry_out_all();
    } else {
      auto result = c(effects);
      carry_out_all();
      return result;
    }
  }
  template <class E>
  void carry_out(E& effect) {
    if constexpr (requires { hands.carry_out(std::move(effect)); })
      hands.carry_out(std::move(effect));
    else if constexpr (std::same_as<E, Tell>)
      post.tell(Mail(agent.address, effect.to, effect.message));
    else
      FAIL("Serving wants what only a worker can do");
  }

  void end() {
    call([&](auto& effects) { serving.stop(effects); });
    wait_ended();
  }
  /// Takes the next news of an actor.
  bool hear() {
    const auto next = mail->next();
    if (!next) return false;
    if (const auto* ended = testing::local<NodeAgentInbox, Ended>(*next)) {
      if (const auto it = ending.find(ended->actor); it != ending.end()) ending.erase(it);
    } else if (const auto* settled = testing::local<NodeAgentInbox, RoutesSettled>(*next)) {
      serving.on(*settled);
    }
    return true;
  }
  /// Until what has been told to end holds nothing any more.
  void wait_ended() {
    while (!ending.empty()) REQUIRE(hear());
  }
  Device& device() { return cpu; }

  void read(const ReadOrder& order) {
    for (const auto& key : order.experts)
      weights.take({kNumerics,
                    key,
                    {},
                    true,
                    *load_expert(*checkpoint, kNumerics, key.layer, key.expert),
                    nullptr});
    for (const auto& layers : order.shards)
      weights.take({kNumerics,
                    {},
                    layers,
                    false,
                    nullptr,
                    *load_shard(*checkpoint, kNumerics, layers.first, layers.last)});
  }
  Status prepare(std::uint64_t version, const Part& part) {
    const auto work = work_of(version, part);
    weights.begin(work->version, {kNumerics, work->shards, work->experts, {}},
                  PlacementVersion{version - 1});
    auto memory = serving.reserve(*work, *sizes);
    if (!memory.ok()) return memory.error();
    read(weights.missing(work->version));
    auto planned = serving.plan(work, sizes, weights.part(work->version), std::move(*memory));
    if (!planned.ok()) return planned.error();
    if (const Status built = (*planned)->build(); !built.ok()) return built;
    return call([&](auto& effects) { return serving.adopt(**planned, effects); });
  }
  void begin_activation(std::uint64_t version) {
    call([&](auto& effects) { serving.activate(PlacementVersion{version}, effects); });
  }
  void wait_settled(std::uint64_t version) {
    auto settled = serving.take_settled();
    while (!settled) {
      REQUIRE(hear());
      settled = serving.take_settled();
    }
    CHECK(*settled == PlacementVersion{version});
    CHECK(!serving.take_settled());  // it is said once
  }
  void activate(std::uint64_t version) {
    begin_activation(version);
    wait_settled(version);
  }
  void retire(std::uint64_t version) {
    call([&](auto& effects) { serving.retire(PlacementVersion{version}, effects); });
  }
  void drop_pending(const VersionWork* next) {
    call([&](auto& effects) { serving.drop_pending(next, effects); });
  }
  void member_lost(NodeId node, Incarnation incarnation) {
    call([&](auto& effects) { serving.member_lost({node, incarnation, "it died"}, effects); });
  }
  void make_active(std::uint64_t version, const Part& part) {
    const Status prepared = prepare(version, part);
    if (!prepared.ok()) FAIL(prepared.error().message);
    activate(version);
    retire(version);
  }

  std::vector<std::int32_t> hosted() { return ids_of(*device().experts()); }
  /// Those that shards here use without asking.
  std::vector<std::int32_t> used() { return ids_of(*device().serving_experts()); }
  static std::vector<std::int32_t> ids_of(const ExpertSet& set) {
    std::vector<std::int32_t> ids;
    for (const auto& [key, expert] : set.experts()) ids.push_back(key.expert);
    return ids;
  }
  std::vector<std::uint32_t> replicas() const {
    std::vector<std::uint32_t> ids;
    for (const auto& report : serving.reports()) ids.push_back(report.replica);
    return ids;
  }
  std::uint64_t expert() const { return expert_bytes(checkpoint->spec(), kNumerics); }
  std::uint64_t layers(std::int32_t first, std::int32_t last) const {
    return shard_bytes(checkpoint->spec(), kNumerics, first, last);
  }
  std::uint64_t cache(std::int32_t first, std::int32_t last) const {
    return kv_cache_bytes(checkpoint->spec(), kNumerics, {first, last, 8, 16});
  }
};

using Ids = std::vector<std::int32_t>;
using Replicas = std::vector<std::uint32_t>;

TEST_CASE("ranks exchange by NCCL if all their nodes have the same, and each a device") {
  const auto peer = [](std::uint32_t id, std::uint32_t nccl) {
    return Peer{NodeId{id}, kPeerLife, "", {}, nccl};
  };
  const DeviceRef own{kSelf, 0}, other{kSelf, 1}, far{kPeer, 0}, third{NodeId{3}, 0};
  const std::vector<Peer> peers = {peer(2, 22809), peer(3, 22703)};
  CHECK(share_nccl(kSelf, 22809, peers, {own, far}));
  CHECK(share_nccl(kSelf, 22809, peers, {own, other}));
  CHECK_FALSE(share_nccl(kSelf, 22809, peers, {own, own}));
  CHECK_FALSE(share_nccl(kSelf, 22809, peers, {own, far, third}));
  CHECK_FALSE(share_nccl(kSelf, 22809, {peer(2, 0)}, {own, far}));
  CHECK_FALSE(share_nccl(kSelf, 0, {peer(2, 0)}, {own, far}));
}

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
  node.retire(2);
  CHECK(node.hosted() == Ids{1, 2});
  CHECK(node.device().memory_used() == first + node.cache(0, 2));

  SUBCASE("what the next one lacks ends when it is active") {
    REQUIRE(node.prepare(3, {{1}, {}, {2}}).ok());
    CHECK(node.replicas() == Replicas{0, 1});
    node.activate(3);
    CHECK(node.replicas() == Replicas{1});
    node.retire(3);
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
  const std::uint64_t base = probe.layers(0, 2) + probe.cache(0, 2) + 2 * probe.expert();
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
    node.drop_pending(nullptr);
    CHECK(node.replicas() == Replicas{0});
    CHECK(node.hosted() == Ids{0});
    node.wait_ended();
    CHECK(node.device().memory_used() == before);
  }
  SUBCASE("for another that has some of it") {
    const auto next = work_of(3, {{0, 2}, {}, {0}});
    node.drop_pending(next.get());
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
  node.member_lost(NodeId{9}, Incarnation{9});
  CHECK(node.replicas() == Replicas{0, 1});
  node.member_lost(kPeer, kPeerLife);
  CHECK(node.replicas() == Replicas{0});
  CHECK(node.hosted() == Ids{0});
  node.wait_ended();
  CHECK(node.device().memory_used() == node.layers(0, 2) + node.cache(0, 2) + node.expert());
}

TEST_CASE("a shard that ends settles too") {
  Node node;
  node.make_active(1, {{0}, {1}, {0}});
  REQUIRE(node.prepare(2, {{0}, {1}, {1}}).ok());
  node.begin_activation(2);
  node.member_lost(kPeer, kPeerLife);
  node.wait_settled(2);
}

TEST_CASE("a canary goes through real actors; two replicas make the same of it") {
  Node node;
  std::vector<std::int32_t> all(static_cast<std::size_t>(node.checkpoint->spec().num_experts()));
  std::iota(all.begin(), all.end(), 0);
  node.make_active(1, {{0, 1}, {}, all, true});
  const Address supervisor = Ref<SupervisorInbox>(kHeadNode, Incarnation{1}).address;
  auto head = std::make_shared<testing::MailQueue>();
  node.post.attach(supervisor, head);
  std::vector<CanaryResult> results;
  for (const std::uint32_t replica : {0u, 1u}) {
    RunCanary order{replica, 7, {}, 4};
    for (TokenId token = 0; token < 20; ++token) order.prompt.push_back(token * 3 % 50);
    node.post.deliver({supervisor, Ref<ReplicaInbox>(kSelf, kLife, replica).address,
                       message_of(std::move(order))});
    const auto mail = head->next();
    REQUIRE(mail);
    results.push_back(std::get<CanaryResult>(*mail->envelope.message));
  }
  node.post.detach(supervisor);
  CHECK(!results[0].error);
  CHECK(results[0].tokens.size() == 4);
  CHECK(results[0].digests.size() ==
        4 * 2 * static_cast<std::size_t>(node.checkpoint->spec().num_layers()));
  CHECK(results[0].digests == results[1].digests);
  CHECK(results[0].tokens == results[1].tokens);
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
  const auto answers = std::make_shared<testing::MailQueue>();
  node.post.attach(asker, answers);
  Dispatch question;
  question.call = 7;
  question.version = PlacementVersion{1};
  question.layer = 1;
  question.rows = 1;
  question.pairs = {{0, 0}};
  question.payload = Payload::of(std::make_shared<Buffer>(
      static_cast<std::size_t>(node.checkpoint->spec().hidden) * dtype_size(wire_type(kNumerics))));
  const Address group{kSelf, kLife, {ActorKind::kExpertGroup, 0}};
  node.post.send({asker, group, message_of(std::move(question))});
  const auto answer = answers->next();
  REQUIRE(answer);
  (void)node.post.detach(asker);
  return answer->envelope.message;
}

TEST_CASE("the group of a failed device has nothing here any more") {
  Node node;
  node.make_active(1, {{}, {}, {0}});
  CHECK(std::holds_alternative<ExpertOutput>(*ask(node)));
  node.device().fail("an uncorrectable error");
  const MessagePtr answer = ask(node);
  REQUIRE(std::holds_alternative<NotHere>(*answer));
  CHECK(std::get<NotHere>(*answer).call == 7);
  CHECK(std::get<NotHere>(*answer).reason == "The device has failed: an uncorrectable error.");
}

/// Where an effect of that kind comes in the order; -1: nowhere.
template <class E>
int position(const WorkerEffects& effects) {
  for (std::size_t i = 0; i < effects.list().size(); ++i)
    if (std::holds_alternative<E>(effects.list()[i])) return static_cast<int>(i);
  return -1;
}

// What was read for a version is proven when all have loaded it: until then it may be wrong. Others
// may ask for it a moment before this node hears that it is in force.
TEST_CASE("experts of a version that is not in force are answered with, and not used here") {
  Node node;
  REQUIRE(node.prepare(1, {{0}, {}, {0, 1}}).ok());
  CHECK(node.hosted() == std::vector{0, 1});
  CHECK(node.used().empty());
  node.activate(1);
  CHECK(node.used() == std::vector{0, 1});
  REQUIRE(node.prepare(2, {{0}, {}, {1, 2}}).ok());
  CHECK(node.hosted() == std::vector{0, 1, 2});
  CHECK(node.used() == std::vector{0, 1});
  node.drop_pending(nullptr);
  CHECK(node.hosted() == std::vector{0, 1});
  REQUIRE(node.prepare(3, {{0}, {}, {1, 2}}).ok());
  node.activate(3);
  CHECK(node.used() == std::vector{0, 1, 2});
  node.retire(3);
  CHECK(node.used() == std::vector{1, 2});
  CHECK(node.device().experts() == node.device().serving_experts());  // one pass for all
}

TEST_CASE("a shard starts after its experts are there, and hears at once whom it cannot ask") {
  Node node;
  node.call([&](auto& effects) {
    node.serving.peer_down({NodeId{7}, Incarnation{70}, "reset"}, effects);
    node.serving.avoid({{NodeId{8}, 0}}, effects);
  });
  const auto work = work_of(1, {{0}, {}, {0}});
  node.weights.begin(work->version, {kNumerics, work->shards, work->experts, {}}, std::nullopt);
  node.read(node.weights.missing(work->version));
  auto planned = node.serving.plan(work, node.sizes, node.weights.part(work->version), {});
  REQUIRE(planned.ok());
  REQUIRE((*planned)->build().ok());
  node.call([&](WorkerEffects& effects) {
    REQUIRE(node.serving.adopt(**planned, effects).ok());
    CHECK(position<StartGroup>(effects) == 0);
    CHECK(position<PublishExperts>(effects) == 1);
    CHECK(position<StartShard>(effects) == 2);
    CHECK(position<Tell>(effects) == 3);
    CHECK(position<StartReplica>(effects) == 5);
    const auto down = testing::told<LayerShardInbox, PeerDown>(effects);
    REQUIRE(down.size() == 1);
    CHECK(down[0].node == NodeId{7});
    const auto avoided = testing::told<LayerShardInbox, DevicesAvoided>(effects);
    REQUIRE(avoided.size() == 1);
    CHECK(avoided[0].devices == std::set<DeviceRef>{{NodeId{8}, 0}});
  });
}

TEST_CASE("shards and replicas hear of a peer that cannot be reached; shards that it can again") {
  Node node;
  node.make_active(1, {{0}, {1}, {0}});
  node.call([&](WorkerEffects& effects) {
    node.serving.peer_down({kPeer, kPeerLife, "reset"}, effects);
    CHECK(testing::told<LayerShardInbox, PeerDown>(effects).size() == 2);
    CHECK(testing::told<ReplicaInbox, PeerDown>(effects).size() == 2);
  });
  node.call([&](WorkerEffects& effects) {
    node.serving.peer_up({kPeer, kPeerLife}, effects);
    CHECK(testing::told<LayerShardInbox, PeerUp>(effects).size() == 2);
  });
}

TEST_CASE("the loss of a later life ends what spans an earlier one") {
  Node node;
  node.make_active(1, {{0}, {1}, {0}});
  node.member_lost(kPeer, Incarnation{kPeerLife.value + 1});
  CHECK(node.replicas() == Replicas{0});
}

}  // namespace
}  // namespace troupe
