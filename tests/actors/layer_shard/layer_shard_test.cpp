#include "actors/layer_shard/layer_shard.h"

#include <doctest/doctest.h>

#include <cstring>

#include "runtime/limits.h"

using namespace troupe;

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

TEST_CASE("a copy near the shard is asked, others in turn, excluded ones never") {
  const std::vector<DeviceRef> all = {kOwn, kFirst, kSecond};
  CHECK(choose_copy(all, kOwn, 7, {}) == kOwn);
  CHECK(choose_copy(all, DeviceRef{NodeId{2}, 1}, 7, {}) == kFirst);
  const DeviceRef elsewhere{NodeId{9}, 0};
  CHECK(choose_copy(all, elsewhere, 0, {}) == kOwn);
  CHECK(choose_copy(all, elsewhere, 1, {}) == kFirst);
  CHECK(choose_copy(all, elsewhere, 2, {}) == kSecond);
  CHECK(choose_copy(all, elsewhere, 0, {kOwn}) == kFirst);
  CHECK(!choose_copy(all, elsewhere, 0, {kOwn, kFirst, kSecond}));
  CHECK(!choose_copy({}, elsewhere, 0, {}));
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
    const NodeId asked_node = dispatch_to(asked, NodeId{2}) ? NodeId{2} : NodeId{3};
    LayerShardActions actions;
    if (lost && asked_node == NodeId{2}) {
      shard.on_peer_down(NodeId{2}, kStart, actions);
    } else {
      const Dispatch* d = dispatch_to(asked, asked_node);
      REQUIRE(d);
      if (asked_node == NodeId{3}) continue;  // expert 2 has no other copy: the next test
      shard.on(from({asked_node, Incarnation{20}, {ActorKind::kExpertGroup, 0}},
                    message_of(NotHere{d->call, {1}, "gone"})),
               kStart, actions);
    }
    REQUIRE(dispatch_to(actions, NodeId{3}));
    CHECK(!sent<StepFailed>(actions));
  }
}

TEST_CASE("a step fails when no copy is left, and says which expert was where") {
  LayerShardActions asked;
  auto shard = waiting_shard(asked);
  LayerShardActions actions;
  shard.on_peer_down(NodeId{3}, kStart, actions);
  REQUIRE(sent<StepFailed>(actions));
  const Error& error = sent<StepFailed>(actions)->error;
  CHECK(error.code == ErrorCode::kUnavailable);
  CHECK(error.message.find("Expert 2 of layer 1") != std::string::npos);
  CHECK(error.message.find("node-3/0") != std::string::npos);
  // The job still has the step's buffers: they are released when it ends.
  CHECK(actions.releases.empty());
  LayerShardActions later;
  shard.on_computed(StepId{1}, {}, kStart, later);
  CHECK(later.releases.size() == 1);
  CHECK(shard.steps() == 0);
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
