#include "actors/layer_shard/layer_shard.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cstring>

#include "actors/layer_shard/expert_counter.h"
#include "runtime/limits.h"

using namespace troupe;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kRowBytes = 8;
const DeviceRef kOwn{NodeId{1}, 0}, kFirst{NodeId{2}, 0}, kSecond{NodeId{3}, 0};
const Address kPreviousAddress{NodeId{2}, Incarnation{20}, {ActorKind::kLayerShard, 0}};
const Address kReplicaAddress{NodeId{1}, Incarnation{10}, {ActorKind::kReplica, 0}};

/// A placement in which expert 0 is here, expert 1 on nodes 2 and 3, expert 2 on node 3 alone.
Placement placement() {
  Placement p;
  p.version = PlacementVersion{4};
  p.experts = {{1, {{0, kOwn}, {1, kFirst}, {1, kSecond}, {2, kSecond}}}};
  return p;
}

LayerShardConfig config(bool first = true, bool last = true) {
  LayerShardConfig c;
  c.self = {NodeId{1}, Incarnation{10}, {ActorKind::kLayerShard, 0}};
  c.replica = kReplicaAddress;
  if (!first) c.previous = kPreviousAddress;
  if (!last) c.next = Address{NodeId{2}, Incarnation{20}, {ActorKind::kLayerShard, 16}};
  c.device = kOwn;
  c.routes = std::make_shared<const ExpertRoutes>(placement());
  c.members = {
      {NodeId{1}, Incarnation{10}}, {NodeId{2}, Incarnation{20}}, {NodeId{3}, Incarnation{30}}};
  return c;
}

Envelope from(const Address& who, MessagePtr message) { return {who, config().self, message}; }

Envelope plan(std::uint64_t step) {
  StepPlan p;
  p.body.step = StepId{step};
  p.body.sequences.resize(1);
  p.body.sequences[0].tokens = {5, 6};
  return from(kReplicaAddress, message_of(std::move(p)));
}

/// Two rows; row 0 needs expert 1 in slot 0, row 1 experts 1 and 2.
ExpertCut cut() {
  ExpertCut c;
  c.layer = 1;
  c.missing = {{0, 0, 1}, {1, 0, 1}, {1, 1, 2}};
  c.row_bytes = kRowBytes;
  auto rows = std::make_shared<Buffer>(2 * kRowBytes);
  std::memset(rows->data(), 'a', kRowBytes);
  std::memset(rows->data() + kRowBytes, 'b', kRowBytes);
  c.rows = Payload::of(std::move(rows));
  return c;
}

const Dispatch* dispatch_to(const LayerShardActions& actions, NodeId node) {
  for (const auto& send : actions.sends)
    if (send.to.node == node)
      if (const auto* d = std::get_if<Dispatch>(send.message.get())) return d;
  return nullptr;
}

Envelope output_of(const Dispatch& d, NodeId node) {
  return from(
      {node, Incarnation{node.value * 10}, {ActorKind::kExpertGroup, 0}},
      message_of(ExpertOutput{d.call, static_cast<std::uint32_t>(d.pairs.size()),
                              Payload::of(std::make_shared<Buffer>(d.pairs.size() * kRowBytes))}));
}

template <class T>
const T* sent(const LayerShardActions& actions) {
  for (const auto& send : actions.sends)
    if (const auto* m = std::get_if<T>(send.message.get())) return m;
  return nullptr;
}

Envelope refusal_of(const Dispatch& d, NodeId node) {
  return from({node, Incarnation{node.value * 10}, {ActorKind::kExpertGroup, 0}},
              message_of(NotHere{d.call, {}, "gone"}));
}

const TimePoint kStart{std::chrono::seconds(100)};

/// A shard whose step 1 waits for its experts; `asked` has the questions.
LayerShard waiting_shard(LayerShardActions& asked) {
  LayerShard shard(config());
  LayerShardActions begun;
  shard.on(plan(1), kStart, begun);
  CHECK(begun.begins.size() == 1);
  shard.on_cut(StepId{1}, cut(), kStart, asked);
  return shard;
}

}  // namespace

TEST_CASE("the own copy is asked, else the one with the least to do, avoided ones last") {
  const std::vector<DeviceRef> all = {kOwn, kFirst, kSecond};
  const DeviceRef elsewhere{NodeId{9}, 0};
  const std::set<DeviceRef> none;
  const auto chosen = [&](const DeviceRef& self, std::uint64_t turn,
                          const std::set<DeviceRef>& excluded, const std::set<DeviceRef>& avoided,
                          const std::map<DeviceRef, std::uint64_t>& load) {
    return choose_copy(all, turn, {self, excluded, avoided, load});
  };
  CHECK(chosen(kOwn, 7, none, none, {{kOwn, 50}}) == kOwn);
  CHECK(chosen(elsewhere, 0, none, none, {}) == kOwn);
  CHECK(chosen(elsewhere, 1, none, none, {}) == kFirst);
  CHECK(chosen(elsewhere, 2, none, none, {}) == kSecond);
  CHECK(chosen(elsewhere, 0, none, none, {{kOwn, 2}, {kFirst, 3}}) == kSecond);
  CHECK(chosen(elsewhere, 1, none, none, {{kFirst, 1}}) == kSecond);
  CHECK(chosen(elsewhere, 0, {kOwn}, none, {}) == kFirst);
  CHECK(chosen(elsewhere, 0, none, {kOwn, kFirst}, {{kSecond, 99}}) == kSecond);
  CHECK(chosen(kOwn, 0, {kSecond}, {kOwn}, {}) == kFirst);
  CHECK(chosen(elsewhere, 0, {kSecond}, {kOwn, kFirst}, {{kOwn, 1}}) == kFirst);
  CHECK(!chosen(elsewhere, 0, {kOwn, kFirst, kSecond}, none, {}));
  CHECK(!choose_copy({}, 0, {elsewhere, none, none, {}}));
}

TEST_CASE("a row that several experts of a group need travels once") {
  LayerShardActions asked;
  auto shard = waiting_shard(asked);
  // Step 1 and expert 1 choose the first copy or the second; expert 2 has one.
  std::size_t pairs = 0, rows = 0;
  for (const auto& send : asked.sends) {
    const auto& d = std::get<Dispatch>(*send.message);
    CHECK(d.layer == 1);
    CHECK(d.version == PlacementVersion{4});
    CHECK(d.payload.bytes.size() == d.rows * kRowBytes);
    pairs += d.pairs.size();
    rows += d.rows;
  }
  CHECK(pairs == 3);
  CHECK(rows <= 3);
}

TEST_CASE("a step goes on when every answer and the local work are in, in either order") {
  for (const bool computed_first : {false, true}) {
    LayerShardActions asked;
    auto shard = waiting_shard(asked);
    LayerShardActions actions;
    if (computed_first) shard.on_computed(StepId{1}, {}, kStart, actions);
    for (const auto& send : asked.sends)
      shard.on(output_of(std::get<Dispatch>(*send.message), send.to.node), kStart, actions);
    if (!computed_first) {
      CHECK(actions.resumes.empty());
      shard.on_computed(StepId{1}, {}, kStart, actions);
    }
    REQUIRE(actions.resumes.size() == 1);
    std::size_t outputs = 0;
    for (const auto& arrival : actions.resumes[0].arrivals) outputs += arrival.outputs.size();
    CHECK(outputs == 3);

    ComputeOutcome done;
    done.done = true;
    done.sequences.resize(1);
    LayerShardActions last;
    shard.on_computed(StepId{1}, std::move(done), kStart, last);
    REQUIRE(sent<StepResult>(last));
    CHECK(last.releases == std::vector<StepId>{StepId{1}});
    CHECK(shard.steps() == 0);
  }
}

TEST_CASE("an answer counts once and must fit the question") {
  LayerShardActions asked;
  auto shard = waiting_shard(asked);
  const auto& question = asked.sends.front();
  const Dispatch& d = std::get<Dispatch>(*question.message);
  LayerShardActions actions;
  shard.on(output_of(d, question.to.node), kStart, actions);
  shard.on(output_of(d, question.to.node), kStart, actions);  // a duplicate is ignored
  CHECK(actions.sends.empty());

  LayerShardActions asked_again;
  auto other = waiting_shard(asked_again);
  const auto& q = asked_again.sends.front();
  Envelope wrong = from({q.to.node, q.to.incarnation, {ActorKind::kExpertGroup, 0}},
                        message_of(ExpertOutput{std::get<Dispatch>(*q.message).call, 99, {}}));
  LayerShardActions failed;
  other.on(wrong, kStart, failed);
  REQUIRE(sent<StepFailed>(failed));
  CHECK(sent<StepFailed>(failed)->error.code == ErrorCode::kCorrupt);
}

TEST_CASE("rows are sent again to another copy when one refuses or is lost") {
  for (const bool lost : {false, true}) {
    LayerShardActions asked;
    auto shard = waiting_shard(asked);
    const Dispatch* first = dispatch_to(asked, NodeId{2});
    REQUIRE(first);
    LayerShardActions actions;
    if (lost) {
      shard.on_peer_down(NodeId{2}, kStart, actions);
    } else {
      shard.on(refusal_of(*first, NodeId{2}), kStart, actions);
    }
    REQUIRE(dispatch_to(actions, NodeId{3}));
    CHECK(dispatch_to(actions, NodeId{3})->pairs == first->pairs);
    CHECK(!sent<StepFailed>(actions));
    // The first answer no longer counts, the others let the step go on.
    LayerShardActions answers;
    shard.on_computed(StepId{1}, {}, kStart, answers);
    shard.on(output_of(*first, NodeId{2}), kStart, answers);
    shard.on(output_of(*dispatch_to(asked, NodeId{3}), NodeId{3}), kStart, answers);
    CHECK(answers.resumes.empty());
    shard.on(output_of(*dispatch_to(actions, NodeId{3}), NodeId{3}), kStart, answers);
    CHECK(answers.resumes.size() == 1);
  }
}

TEST_CASE("rows whose only copy is lost wait until the node is there again") {
  LayerShardActions asked;
  auto shard = waiting_shard(asked);
  LayerShardActions lost;
  shard.on_peer_down(NodeId{3}, kStart, lost);
  CHECK(!sent<StepFailed>(lost));
  REQUIRE(dispatch_to(lost, NodeId{2}));  // what node 2 has a copy of
  LayerShardActions waiting;
  shard.on_computed(StepId{1}, {}, kStart, waiting);
  shard.on(output_of(*dispatch_to(asked, NodeId{2}), NodeId{2}), kStart, waiting);
  shard.on(output_of(*dispatch_to(lost, NodeId{2}), NodeId{2}), kStart, waiting);
  shard.on_wake(kStart + 10s, waiting);
  CHECK(waiting.resumes.empty());
  CHECK(waiting.sends.empty());
  LayerShardActions back;
  shard.on_peer_up(NodeId{3}, kStart + 11s, back);
  REQUIRE(dispatch_to(back, NodeId{3}));
  shard.on(output_of(*dispatch_to(back, NodeId{3}), NodeId{3}), kStart + 11s, back);
  CHECK(back.resumes.size() == 1);
}

TEST_CASE("parked rows go to whom new routes name, a node that is down only in a newer life") {
  for (const bool reborn : {false, true}) {
    LayerShardActions asked;
    auto shard = waiting_shard(asked);
    LayerShardActions actions;
    shard.on_peer_down(NodeId{3}, kStart, actions);
    Placement next = placement();
    next.version = PlacementVersion{5};
    if (!reborn) next.experts[0].slots.push_back({2, kFirst});
    auto members = config().members;
    if (reborn) members[NodeId{3}] = Incarnation{31};
    LayerShardActions routed;
    shard.on_routes(std::make_shared<const ExpertRoutes>(next), members, kStart, routed);
    const Dispatch* again = dispatch_to(routed, reborn ? NodeId{3} : NodeId{2});
    REQUIRE(again);
    CHECK(again->version == PlacementVersion{5});
    CHECK(again->pairs.size() == 1);
    CHECK(again->pairs[0].expert == 2);
    if (reborn) CHECK(routed.sends[0].to.incarnation == Incarnation{31});
    // A node that is down in the life that is known stays out.
    LayerShardActions same;
    shard.on_peer_down(NodeId{2}, kStart, same);
    shard.on_routes(std::make_shared<const ExpertRoutes>(next), members, kStart, same);
    CHECK(!dispatch_to(same, NodeId{2}));
  }
}

TEST_CASE("routes are settled when no question by older ones is open") {
  LayerShardActions asked;
  auto shard = waiting_shard(asked);
  const auto routes = config().routes;
  LayerShardActions flipped;
  const auto first = shard.on_routes(routes, config().members, kStart, flipped);
  const auto second = shard.on_routes(routes, config().members, kStart, flipped);
  CHECK(flipped.settled.empty());
  CHECK(flipped.sends.empty());  // open questions stay where they are
  LayerShardActions answers;
  shard.on(output_of(*dispatch_to(asked, NodeId{2}), NodeId{2}), kStart, answers);
  CHECK(answers.settled.empty());
  shard.on(output_of(*dispatch_to(asked, NodeId{3}), NodeId{3}), kStart, answers);
  CHECK(answers.settled == std::vector<std::uint64_t>{first, second});
  // Without an open question it is settled at once; questions by it do not hold the next one back.
  LayerShardActions idle;
  const auto third = shard.on_routes(routes, config().members, kStart, idle);
  CHECK(idle.settled == std::vector<std::uint64_t>{third});
}

TEST_CASE("questions to an earlier life of a member are asked again when routes name its new one") {
  LayerShardActions asked;
  auto shard = waiting_shard(asked);
  auto members = config().members;
  members[NodeId{2}] = Incarnation{21};
  LayerShardActions routed;
  const auto number = shard.on_routes(config().routes, members, kStart, routed);
  std::size_t pairs = 0;
  for (const auto& send : routed.sends) pairs += std::get<Dispatch>(*send.message).pairs.size();
  CHECK(pairs == dispatch_to(asked, NodeId{2})->pairs.size());
  CHECK(routed.settled.empty());
  LayerShardActions answers;
  shard.on(output_of(*dispatch_to(asked, NodeId{3}), NodeId{3}), kStart, answers);
  CHECK(answers.settled == std::vector<std::uint64_t>{number});
}

TEST_CASE("copies that all refuse are asked again after a pause that grows, not in a circle") {
  LayerShardActions asked;
  auto shard = waiting_shard(asked);
  TimePoint now = kStart;
  std::vector<Envelope> refusals;
  for (const auto& send : asked.sends)
    refusals.push_back(refusal_of(std::get<Dispatch>(*send.message), send.to.node));
  Duration last{};
  for (int round = 0; round < 12; ++round) {
    LayerShardActions actions;
    for (std::size_t i = 0; i < refusals.size(); ++i) {
      LayerShardActions more;
      shard.on(refusals[i], now, more);
      for (const auto& send : more.sends)
        refusals.push_back(refusal_of(std::get<Dispatch>(*send.message), send.to.node));
      REQUIRE(refusals.size() < 10);  // each device is asked once or twice a round
      if (more.wake) actions.wake_at(*more.wake);
    }
    LayerShardActions early, due;
    REQUIRE(actions.wake);
    shard.on_wake(now, early);
    CHECK(early.sends.empty());
    REQUIRE(early.wake);
    const Duration pause = *early.wake - now;
    CHECK(pause >= last);
    CHECK(pause <= kAskAgainMax);
    last = pause;
    now = *early.wake;
    shard.on_wake(now, due);
    CHECK(!sent<StepFailed>(due));
    refusals.clear();
    for (const auto& send : due.sends)
      refusals.push_back(refusal_of(std::get<Dispatch>(*send.message), send.to.node));
    REQUIRE(!refusals.empty());
  }
  CHECK(last == kAskAgainMax);
}

TEST_CASE("a question that cannot be delivered is a refusal: the rows go elsewhere, or wait") {
  LayerShardActions asked;
  auto shard = waiting_shard(asked);
  const auto undeliverable = [](const Dispatch& d, NodeId node) {
    Undeliverable lost;
    lost.to = {node, Incarnation{node.value * 10}, {ActorKind::kExpertGroup, 0}};
    lost.kind = static_cast<std::uint32_t>(Message(Dispatch{}).index());
    lost.reference = d.call;
    lost.error = resource_exhausted("too much is unsent");
    return from(config().self, message_of(std::move(lost)));
  };
  LayerShardActions actions;
  shard.on(undeliverable(*dispatch_to(asked, NodeId{3}), NodeId{3}), kStart, actions);
  REQUIRE(dispatch_to(actions, NodeId{2}));
  CHECK(!dispatch_to(actions, NodeId{3}));
  LayerShardActions due;
  shard.on_wake(kStart + kAskAgainMin, due);
  CHECK(dispatch_to(due, NodeId{3}));
}

TEST_CASE("rows that were lost with two nodes in a row are not sent to a third") {
  LayerShardActions asked;
  auto shard = waiting_shard(asked);
  LayerShardActions first, second;
  shard.on_peer_down(NodeId{2}, kStart, first);
  REQUIRE(dispatch_to(first, NodeId{3}));
  CHECK(!sent<StepFailed>(first));
  shard.on_peer_down(NodeId{3}, kStart, second);
  REQUIRE(sent<StepFailed>(second));
  CHECK(sent<StepFailed>(second)->error.code == ErrorCode::kUnavailable);
  CHECK(sent<StepFailed>(second)->error.message.find("node-3") != std::string::npos);
  // The job still has the step's buffers: they are released when it ends.
  CHECK(second.releases.empty());
  LayerShardActions later;
  shard.on_computed(StepId{1}, {}, kStart, later);
  CHECK(later.releases.size() == 1);
  CHECK(shard.steps() == 0);
}

TEST_CASE("a connection that breaks twice is not two dead nodes") {
  LayerShardActions asked;
  auto shard = waiting_shard(asked);
  for (int i = 0; i < 3; ++i) {
    LayerShardActions down, up;
    shard.on_peer_down(NodeId{3}, kStart, down);
    CHECK(!sent<StepFailed>(down));
    shard.on_peer_up(NodeId{3}, kStart, up);
    CHECK(dispatch_to(up, NodeId{3}));
  }
}

TEST_CASE("devices to avoid are asked only for what nobody else has") {
  LayerShard shard(config());
  LayerShardActions begun, asked;
  shard.on(plan(1), kStart, begun);
  shard.on_avoid({kSecond}, kStart, begun);
  shard.on_cut(StepId{1}, cut(), kStart, asked);
  REQUIRE(dispatch_to(asked, NodeId{3}));
  CHECK(dispatch_to(asked, NodeId{3})->pairs == std::vector<ExpertPair>{{0, 2}});
  CHECK(dispatch_to(asked, NodeId{2})->pairs.size() == 2);
}

TEST_CASE("a step that stays parked fails at its deadline, and says which expert was where") {
  LayerShardActions asked;
  auto shard = waiting_shard(asked);
  LayerShardActions actions;
  shard.on(output_of(*dispatch_to(asked, NodeId{2}), NodeId{2}), kStart, actions);
  shard.on_peer_down(NodeId{3}, kStart, actions);
  shard.on(output_of(*dispatch_to(actions, NodeId{2}), NodeId{2}), kStart, actions);
  LayerShardActions early, late;
  shard.on_wake(kStart + limits::kStepDeadline - 1ms, early);
  CHECK(!sent<StepFailed>(early));
  shard.on_wake(kStart + limits::kStepDeadline, late);
  REQUIRE(sent<StepFailed>(late));
  const Error& error = sent<StepFailed>(late)->error;
  CHECK(error.code == ErrorCode::kUnavailable);
  CHECK(error.message.find("Expert 2 of layer 1") != std::string::npos);
  CHECK(error.message.find("node-3/0") != std::string::npos);
}

TEST_CASE("steps whose hidden rows may be lost on their way to the next stage are failed") {
  LayerShard shard(config(true, false));
  LayerShardActions actions, other, lost, again;
  shard.on(plan(3), kStart, actions);
  ComputeOutcome done;
  done.done = true;
  shard.on_computed(StepId{3}, std::move(done), kStart, actions);
  shard.on_peer_down(NodeId{3}, kStart, other);
  CHECK(!sent<StepFailed>(other));
  shard.on_peer_down(NodeId{2}, kStart, lost);
  REQUIRE(sent<StepFailed>(lost));
  CHECK(sent<StepFailed>(lost)->step == StepId{3});
  CHECK(sent<StepFailed>(lost)->error.code == ErrorCode::kUnavailable);
  shard.on_peer_down(NodeId{2}, kStart, again);
  CHECK(!sent<StepFailed>(again));
}

TEST_CASE("a silent expert group's rows go to another copy if there is one") {
  LayerShardActions asked;
  auto shard = waiting_shard(asked);
  LayerShardActions actions;
  shard.on(output_of(*dispatch_to(asked, NodeId{3}), NodeId{3}), kStart, actions);
  LayerShardActions late;
  shard.on_wake(kStart + limits::kExpertDeadline, late);
  CHECK(!sent<StepFailed>(late));
  CHECK(dispatch_to(late, NodeId{3}));
}

TEST_CASE("what the gates choose is counted until it is taken") {
  ExpertCounter counter(3);
  CHECK(!counter.take());
  const std::int32_t first[] = {0, 2, 2}, second[] = {4};
  counter.add(5, first);
  counter.add(3, second);
  counter.add(5, first);
  const auto counts = counter.take();
  REQUIRE(counts);
  REQUIRE(counts->layers.size() == 2);
  CHECK(counts->layers[0].layer == 3);
  CHECK(counts->layers[0].tokens == std::vector<std::uint32_t>{0, 0, 0, 0, 1});
  CHECK(counts->layers[1].tokens == std::vector<std::uint32_t>{2, 0, 4});
  CHECK(!counter.take());
}

TEST_CASE("nothing waits for ever: a silent expert group fails the step at its deadline") {
  LayerShardActions asked;
  auto shard = waiting_shard(asked);
  REQUIRE(asked.wake);
  CHECK(*asked.wake <= kStart + limits::kExpertDeadline);
  LayerShardActions early, late;
  shard.on_wake(kStart + limits::kExpertDeadline - std::chrono::milliseconds(1), early);
  CHECK(!sent<StepFailed>(early));
  shard.on_wake(kStart + limits::kExpertDeadline, late);
  REQUIRE(sent<StepFailed>(late));
  CHECK(sent<StepFailed>(late)->error.code == ErrorCode::kDeadlineExceeded);
}

TEST_CASE("an aborted step is forgotten: late answers change nothing") {
  LayerShardActions asked;
  auto shard = waiting_shard(asked);
  LayerShardActions actions;
  shard.on(from(kReplicaAddress, message_of(StepAbort{0, StepId{1}})), kStart, actions);
  for (const auto& send : asked.sends)
    shard.on(output_of(std::get<Dispatch>(*send.message), send.to.node), kStart, actions);
  shard.on_computed(StepId{1}, {}, kStart, actions);
  CHECK(actions.sends.empty());
  CHECK(actions.resumes.empty());
  CHECK(actions.releases.size() == 1);
  CHECK(shard.steps() == 0);
}

TEST_CASE("a later stage begins when both plan and hidden rows are here, in either order") {
  const Envelope hidden =
      from(kPreviousAddress,
           message_of(Hidden{0, StepId{1}, 2, Payload::of(std::make_shared<Buffer>(16))}));
  for (const bool hidden_first : {false, true}) {
    LayerShard shard(config(false));
    LayerShardActions actions;
    shard.on(hidden_first ? hidden : plan(1), kStart, actions);
    CHECK(actions.begins.empty());
    shard.on(hidden_first ? plan(1) : hidden, kStart, actions);
    REQUIRE(actions.begins.size() == 1);
    CHECK(actions.begins[0].hidden.bytes.size() == 16);
    shard.on(hidden, kStart, actions);
    shard.on(plan(1), kStart, actions);
    CHECK(actions.begins.size() == 1);  // duplicates begin nothing
  }
}

TEST_CASE("hidden rows of an aborted step, or of a stranger, leave nothing behind") {
  LayerShard shard(config(false));
  LayerShardActions actions;
  const auto hidden =
      message_of(Hidden{0, StepId{1}, 2, Payload::of(std::make_shared<Buffer>(16))});
  shard.on(from({NodeId{3}, Incarnation{30}, {ActorKind::kLayerShard, 0}}, hidden), kStart,
           actions);
  CHECK(shard.steps() == 0);
  shard.on(from({NodeId{3}, Incarnation{30}, {ActorKind::kReplica, 0}},
                message_of(StepAbort{0, StepId{1}})),
           kStart, actions);
  shard.on(from(kPreviousAddress, hidden), kStart, actions);
  CHECK(shard.steps() == 1);  // a stranger's abort does not count
  shard.on(from(kReplicaAddress, message_of(StepAbort{0, StepId{1}})), kStart, actions);
  shard.on(from(kPreviousAddress, hidden), kStart, actions);
  CHECK(shard.steps() == 0);
}

TEST_CASE("only its own replica plans for a shard") {
  LayerShard shard(config());
  LayerShardActions actions;
  Envelope stranger = plan(1);
  stranger.from.incarnation = Incarnation{9};
  shard.on(stranger, kStart, actions);
  CHECK(actions.begins.empty());
  CHECK(shard.steps() == 0);
}

TEST_CASE("a middle stage passes its hidden rows on") {
  LayerShard shard(config(true, false));
  LayerShardActions actions;
  shard.on(plan(3), kStart, actions);
  ComputeOutcome done;
  done.done = true;
  done.hidden = Payload::of(std::make_shared<Buffer>(32));
  shard.on_computed(StepId{3}, std::move(done), kStart, actions);
  REQUIRE(sent<Hidden>(actions));
  CHECK(sent<Hidden>(actions)->rows == 2);
  CHECK(actions.sends.back().to.actor.index == 16);
}
