#include "actors/layer_shard/expert_calls.h"

#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <vector>

#include "runtime/limits.h"
#include "tests/actors/layer_shard/stand.h"

using namespace troupe;
using namespace troupe::testing;
using namespace std::chrono_literals;

TEST_CASE("a row that several experts of a group need travels once") {
  LayerShard::Effects asked;
  auto shard = waiting_shard(asked);
  // Step 1 and expert 1 choose the first copy or the second; expert 2 has one.
  std::size_t pairs = 0, rows = 0;
  for (const auto& send : all<Send>(asked)) {
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

TEST_CASE("an answer counts once and must fit the question") {
  LayerShard::Effects asked;
  auto shard = waiting_shard(asked);
  const Send question = all<Send>(asked).front();
  const Dispatch& d = std::get<Dispatch>(*question.message);
  LayerShard::Effects actions;
  play(shard, output_of(d, question.to.node), kStart, actions);
  play(shard, output_of(d, question.to.node), kStart, actions);  // a duplicate is ignored
  CHECK(all<Send>(actions).empty());

  LayerShard::Effects asked_again;
  auto other = waiting_shard(asked_again);
  const Send q = all<Send>(asked_again).front();
  Envelope wrong = from({q.to.node, q.to.incarnation, {ActorKind::kExpertGroup, 0}},
                        message_of(ExpertOutput{std::get<Dispatch>(*q.message).call, 99, {}}));
  LayerShard::Effects asked_elsewhere;
  play(other, wrong, kStart, asked_elsewhere);
  CHECK(!heard<StepFailed>(asked_elsewhere));
  CHECK(told<NodeAgentInbox, PeerCorrupt>(asked_elsewhere).size() == 1);
}

TEST_CASE("rows are sent again to another copy when one refuses or is lost") {
  for (const bool lost : {false, true}) {
    LayerShard::Effects asked;
    auto shard = waiting_shard(asked);
    const Dispatch* first = dispatch_to(asked, NodeId{2});
    REQUIRE(first);
    LayerShard::Effects actions;
    if (lost) {
      play(shard, down(2), kStart, actions);
    } else {
      play(shard, refusal_of(*first, NodeId{2}), kStart, actions);
    }
    REQUIRE(dispatch_to(actions, NodeId{3}));
    CHECK(dispatch_to(actions, NodeId{3})->pairs == first->pairs);
    CHECK(!heard<StepFailed>(actions));
    // The first answer no longer counts, the others let the step go on.
    LayerShard::Effects answers;
    play(shard, StepComputed{StepId{1}, {}}, kStart, answers);
    play(shard, output_of(*first, NodeId{2}), kStart, answers);
    play(shard, output_of(*dispatch_to(asked, NodeId{3}), NodeId{3}), kStart, answers);
    CHECK(all<ResumeStep>(answers).empty());
    play(shard, output_of(*dispatch_to(actions, NodeId{3}), NodeId{3}), kStart, answers);
    CHECK(all<ResumeStep>(answers).size() == 1);
  }
}

TEST_CASE("rows whose only copy is lost wait until the node is there again") {
  LayerShard::Effects asked;
  auto shard = waiting_shard(asked);
  LayerShard::Effects lost;
  play(shard, down(3), kStart, lost);
  CHECK(!heard<StepFailed>(lost));
  REQUIRE(dispatch_to(lost, NodeId{2}));  // what node 2 has a copy of
  LayerShard::Effects waiting;
  play(shard, StepComputed{StepId{1}, {}}, kStart, waiting);
  play(shard, output_of(*dispatch_to(asked, NodeId{2}), NodeId{2}), kStart, waiting);
  play(shard, output_of(*dispatch_to(lost, NodeId{2}), NodeId{2}), kStart, waiting);
  play_wake(shard, kStart + 10s, waiting);
  CHECK(all<ResumeStep>(waiting).empty());
  CHECK(!heard<Dispatch>(waiting));
  CHECK(!heard<StepFailed>(waiting));
  LayerShard::Effects back;
  play(shard, up(3), kStart + 11s, back);
  REQUIRE(dispatch_to(back, NodeId{3}));
  play(shard, output_of(*dispatch_to(back, NodeId{3}), NodeId{3}), kStart + 11s, back);
  CHECK(all<ResumeStep>(back).size() == 1);
}

TEST_CASE("parked rows go to whom new routes name, a node that is down only in a newer life") {
  for (const bool reborn : {false, true}) {
    LayerShard::Effects asked;
    auto shard = waiting_shard(asked);
    LayerShard::Effects actions;
    play(shard, down(3), kStart, actions);
    Placement next = placement();
    next.version = PlacementVersion{5};
    if (!reborn) next.experts[0].slots.push_back({2, kFirst});
    auto members = config().members;
    if (reborn) members[NodeId{3}] = Incarnation{31};
    LayerShard::Effects routed;
    const RoutesChanged changed{std::make_shared<const ExpertRoutes>(next), members};
    play(shard, changed, kStart, routed);
    const Dispatch* again = dispatch_to(routed, reborn ? NodeId{3} : NodeId{2});
    REQUIRE(again);
    CHECK(again->version == PlacementVersion{5});
    CHECK(again->pairs.size() == 1);
    CHECK(again->pairs[0].expert == 2);
    if (reborn) CHECK(all<Send>(routed)[0].to.incarnation == Incarnation{31});
    // A node that is down in the life that is known stays out.
    LayerShard::Effects same;
    play(shard, down(2), kStart, same);
    play(shard, changed, kStart, same);
    CHECK(!dispatch_to(same, NodeId{2}));
  }
}

TEST_CASE("routes are settled when no question by older ones is open") {
  LayerShard::Effects asked;
  auto shard = waiting_shard(asked);
  LayerShard::Effects flipped;
  play(shard, routes(5), kStart, flipped);
  play(shard, routes(6), kStart, flipped);
  CHECK(flipped.list().empty());  // open questions stay where they are
  LayerShard::Effects answers;
  play(shard, output_of(*dispatch_to(asked, NodeId{2}), NodeId{2}), kStart, answers);
  CHECK(settled(answers).empty());
  play(shard, output_of(*dispatch_to(asked, NodeId{3}), NodeId{3}), kStart, answers);
  CHECK(settled(answers) == std::vector<std::uint64_t>{5, 6});
  const Tell tell = all<Tell>(answers).at(0);
  CHECK(tell.to == Address{NodeId{1}, Incarnation{10}, {ActorKind::kNodeAgent, 0}});
  // Without an open question it is settled at once; questions by it do not hold the next one back.
  LayerShard::Effects idle;
  play(shard, routes(7), kStart, idle);
  CHECK(settled(idle) == std::vector<std::uint64_t>{7});
}

TEST_CASE("routes that let parked rows go are settled after those were asked for") {
  LayerShard::Effects asked, lost, routed;
  auto shard = waiting_shard(asked);
  play(shard, output_of(*dispatch_to(asked, NodeId{2}), NodeId{2}), kStart, asked);
  play(shard, down(3), kStart, lost);
  play(shard, output_of(*dispatch_to(lost, NodeId{2}), NodeId{2}), kStart, lost);
  RoutesChanged changed = routes(5);
  changed.members[NodeId{3}] = Incarnation{31};
  play(shard, changed, kStart, routed);
  REQUIRE(routed.list().size() == 2);
  CHECK(std::holds_alternative<Send>(routed.list()[0]));
  CHECK(std::holds_alternative<Tell>(routed.list()[1]));
  CHECK(settled(routed) == std::vector<std::uint64_t>{5});
}

TEST_CASE("questions to an earlier life of a member are asked again when routes name its new one") {
  LayerShard::Effects asked;
  auto shard = waiting_shard(asked);
  RoutesChanged changed = routes(5);
  changed.members[NodeId{2}] = Incarnation{21};
  LayerShard::Effects routed;
  play(shard, changed, kStart, routed);
  std::size_t pairs = 0;
  for (const auto& dispatch : sent<Dispatch>(routed)) pairs += dispatch.pairs.size();
  CHECK(pairs == dispatch_to(asked, NodeId{2})->pairs.size());
  CHECK(settled(routed).empty());
  LayerShard::Effects answers;
  play(shard, output_of(*dispatch_to(asked, NodeId{3}), NodeId{3}), kStart, answers);
  CHECK(settled(answers) == std::vector<std::uint64_t>{5});
}

TEST_CASE("copies that all refuse are asked again after a pause that grows, not in a circle") {
  LayerShard::Effects asked;
  auto shard = waiting_shard(asked);
  TimePoint now = kStart;
  std::vector<Envelope> refusals;
  for (const auto& send : all<Send>(asked))
    refusals.push_back(refusal_of(std::get<Dispatch>(*send.message), send.to.node));
  Duration last{};
  for (int round = 0; round < 12; ++round) {
    LayerShard::Effects actions;
    for (std::size_t i = 0; i < refusals.size(); ++i) {
      LayerShard::Effects more;
      play(shard, refusals[i], now, more);
      for (const auto& send : all<Send>(more))
        refusals.push_back(refusal_of(std::get<Dispatch>(*send.message), send.to.node));
      REQUIRE(refusals.size() < 10);  // each device is asked once or twice a round
      if (more.wake()) actions.wake_at(*more.wake());
    }
    LayerShard::Effects early, due;
    REQUIRE(actions.wake());
    play_wake(shard, now, early);
    CHECK(all<Send>(early).empty());
    const TimePoint refused = now;
    for (auto wake = early.wake(); !heard<Dispatch>(due); wake = due.wake()) {
      REQUIRE(wake);
      due = {};
      now = *wake;
      play_wake(shard, now, due);
      CHECK(!heard<StepFailed>(due));
    }
    const Duration pause = now - refused;
    CHECK(pause >= last);
    CHECK(pause <= kAskAgainMax);
    last = pause;
    refusals.clear();
    for (const auto& send : all<Send>(due))
      refusals.push_back(refusal_of(std::get<Dispatch>(*send.message), send.to.node));
  }
  CHECK(last == kAskAgainMax);
}

TEST_CASE("a question that cannot be delivered is a refusal: the rows go elsewhere, or wait") {
  LayerShard::Effects asked;
  auto shard = waiting_shard(asked);
  const auto undeliverable = [](const Dispatch& d, NodeId node) {
    Undeliverable lost;
    lost.to = {node, Incarnation{node.value * 10}, {ActorKind::kExpertGroup, 0}};
    lost.kind = static_cast<std::uint32_t>(Message(Dispatch{}).index());
    lost.reference = d.call;
    lost.error = resource_exhausted("too much is unsent");
    return from(config().self.address, message_of(std::move(lost)));
  };
  LayerShard::Effects actions;
  play(shard, undeliverable(*dispatch_to(asked, NodeId{3}), NodeId{3}), kStart, actions);
  REQUIRE(dispatch_to(actions, NodeId{2}));
  CHECK(!dispatch_to(actions, NodeId{3}));
  LayerShard::Effects due;
  play_wake(shard, kStart + kAskAgainMin, due);
  CHECK(dispatch_to(due, NodeId{3}));
}

TEST_CASE("rows that were lost with two nodes in a row are not sent to a third") {
  LayerShard::Effects asked;
  auto shard = waiting_shard(asked);
  LayerShard::Effects first, second;
  play(shard, down(2), kStart, first);
  REQUIRE(dispatch_to(first, NodeId{3}));
  CHECK(!heard<StepFailed>(first));
  play(shard, down(3), kStart, second);
  REQUIRE(heard<StepFailed>(second));
  CHECK(heard<StepFailed>(second)->error.code == ErrorCode::kUnavailable);
  CHECK(heard<StepFailed>(second)->error.message.find("node-3") != std::string::npos);
  // The job still has the step's buffers: they are released when it ends.
  CHECK(all<ReleaseStep>(second).empty());
  LayerShard::Effects later;
  play(shard, StepComputed{StepId{1}, {}}, kStart, later);
  CHECK(all<ReleaseStep>(later).size() == 1);
  CHECK(shard.steps() == 0);
}

TEST_CASE("a connection that breaks twice is not two dead nodes") {
  LayerShard::Effects asked;
  auto shard = waiting_shard(asked);
  for (int i = 0; i < 3; ++i) {
    LayerShard::Effects lost, back;
    play(shard, down(3), kStart, lost);
    CHECK(!heard<StepFailed>(lost));
    play(shard, up(3), kStart, back);
    CHECK(dispatch_to(back, NodeId{3}));
  }
}

TEST_CASE("devices to avoid are asked only for what nobody else has") {
  LayerShard shard(config());
  LayerShard::Effects begun, asked;
  play(shard, plan(1), kStart, begun);
  play(shard, DevicesAvoided{{kSecond}}, kStart, begun);
  play(shard, StepCut{StepId{1}, cut()}, kStart, asked);
  REQUIRE(dispatch_to(asked, NodeId{3}));
  CHECK(dispatch_to(asked, NodeId{3})->pairs == std::vector<ExpertPair>{{0, 2}});
  CHECK(dispatch_to(asked, NodeId{2})->pairs.size() == 2);
}

TEST_CASE("a step that stays parked fails at its deadline, and says which expert was where") {
  LayerShard::Effects asked;
  auto shard = waiting_shard(asked);
  LayerShard::Effects actions;
  play(shard, output_of(*dispatch_to(asked, NodeId{2}), NodeId{2}), kStart, actions);
  play(shard, down(3), kStart, actions);
  play(shard, output_of(*dispatch_to(actions, NodeId{2}), NodeId{2}), kStart, actions);
  LayerShard::Effects early, late;
  play_wake(shard, kStart + limits::kStepDeadline - 1ms, early);
  CHECK(!heard<StepFailed>(early));
  play_wake(shard, kStart + limits::kStepDeadline, late);
  REQUIRE(heard<StepFailed>(late));
  const Error& error = heard<StepFailed>(late)->error;
  CHECK(error.code == ErrorCode::kUnavailable);
  CHECK(error.message.find("Expert 2 of layer 1") != std::string::npos);
  CHECK(error.message.find("node-3/0") != std::string::npos);
}

TEST_CASE("a silent expert group's rows go to another copy if there is one") {
  LayerShard::Effects asked;
  auto shard = waiting_shard(asked);
  LayerShard::Effects actions;
  play(shard, output_of(*dispatch_to(asked, NodeId{3}), NodeId{3}), kStart, actions);
  LayerShard::Effects late;
  play_wake(shard, kStart + limits::kExpertSilence, late);
  CHECK(!heard<StepFailed>(late));
  CHECK(dispatch_to(late, NodeId{3}));
}

TEST_CASE("nothing waits for ever: a silent expert group fails the step at its deadline") {
  LayerShard::Effects asked;
  auto shard = waiting_shard(asked);
  REQUIRE(asked.wake());
  CHECK(*asked.wake() <= kStart + limits::kExpertSilence);
  LayerShard::Effects early, late;
  play_wake(shard, kStart + limits::kExpertSilence - std::chrono::milliseconds(1), early);
  CHECK(!heard<StepFailed>(early));
  play_wake(shard, kStart + limits::kExpertSilence, late);
  REQUIRE(heard<StepFailed>(late));
  CHECK(heard<StepFailed>(late)->error.code == ErrorCode::kDeadlineExceeded);
}

TEST_CASE("a group that says it works is waited for, and the step with it") {
  LayerShard::Effects asked;
  auto shard = waiting_shard(asked);
  const Dispatch& first = *dispatch_to(asked, NodeId{2});
  const Dispatch& second = *dispatch_to(asked, NodeId{3});
  const auto at_work = [](const Dispatch& d, NodeId node) {
    return from({node, Incarnation{node.value * 10}, {ActorKind::kExpertGroup, 0}},
                message_of(ExpertProgress{d.call}));
  };
  LayerShard::Effects effects;
  play(shard, StepComputed{StepId{1}, {}}, kStart, effects);
  TimePoint now = kStart;
  for (; now < kStart + 3 * limits::kStepDeadline; now += limits::kProgressEvery) {
    play(shard, at_work(first, NodeId{2}), now, effects);
    play(shard, at_work(second, NodeId{3}), now, effects);
    play_wake(shard, now, effects);
  }
  CHECK(!heard<StepFailed>(effects));
  REQUIRE(heard<StepProgress>(effects));
  CHECK(heard<StepProgress>(effects)->step == StepId{1});
  // What another node says of a question is not heard.
  for (; now < kStart + 4 * limits::kStepDeadline; now += limits::kProgressEvery) {
    play(shard, at_work(first, NodeId{3}), now, effects);
    play_wake(shard, now, effects);
  }
  CHECK(heard<StepFailed>(effects));
}

TEST_CASE("an answer that does not fit costs its sender the connection, and nobody's step") {
  for (const bool short_payload : {false, true}) {
    LayerShard::Effects asked;
    auto shard = waiting_shard(asked);
    const Dispatch& question = *dispatch_to(asked, NodeId{2});
    Envelope answer = output_of(question, NodeId{2});
    ExpertOutput output = std::get<ExpertOutput>(*answer.message);
    if (short_payload)
      output.payload.bytes = output.payload.bytes.first(kRowBytes / 2);
    else
      ++output.pairs;
    answer.message = message_of(std::move(output));
    LayerShard::Effects effects;
    play(shard, answer, kStart, effects);
    CHECK(!heard<StepFailed>(effects));
    const auto corrupt = told<NodeAgentInbox, PeerCorrupt>(effects);
    REQUIRE(corrupt.size() == 1);
    CHECK(corrupt[0].node == NodeId{2});
    CHECK(corrupt[0].incarnation == Incarnation{20});
    // Its rows go to the other copy, and the step goes on.
    REQUIRE(dispatch_to(effects, NodeId{3}));
    CHECK(dispatch_to(effects, NodeId{3})->pairs.size() == question.pairs.size());
    LayerShard::Effects done;
    play(shard, StepComputed{StepId{1}, {}}, kStart, done);
    play(shard, output_of(*dispatch_to(asked, NodeId{3}), NodeId{3}), kStart, done);
    play(shard, output_of(*dispatch_to(effects, NodeId{3}), NodeId{3}), kStart, done);
    CHECK(all<ResumeStep>(done).size() == 1);
  }
}

TEST_CASE("who answers a question that another was asked is not believed") {
  LayerShard::Effects asked;
  auto shard = waiting_shard(asked);
  LayerShard::Effects effects;
  play(shard, output_of(*dispatch_to(asked, NodeId{2}), NodeId{3}), kStart, effects);
  REQUIRE(told<NodeAgentInbox, PeerCorrupt>(effects).size() == 1);
  CHECK(told<NodeAgentInbox, PeerCorrupt>(effects)[0].node == NodeId{3});
  CHECK(!heard<StepFailed>(effects));
  CHECK(all<Send>(effects).empty());
}

TEST_CASE("what waits for a peer needs no pause when another copy takes what was refused") {
  const DeviceRef third{NodeId{4}, 0};
  Placement p = placement();
  p.experts = {{1, {{0, kOwn}, {1, kFirst}, {1, third}, {2, kSecond}}}};
  LayerShardConfig c = config();
  c.routes = std::make_shared<const ExpertRoutes>(p);
  c.members[third.node] = Incarnation{40};
  LayerShard shard(c);
  LayerShard::Effects asked, refused, up_again;
  play(shard, plan(1), kStart, asked);
  play(shard, StepCut{StepId{1}, cut()}, kStart, asked);
  play(shard, down(3), kStart, asked);  // expert 2 is there alone
  const NodeId first = dispatch_to(asked, kFirst.node) ? kFirst.node : third.node;
  const NodeId second = first == third.node ? kFirst.node : third.node;
  play(shard, refusal_of(*dispatch_to(asked, first), first), kStart, refused);
  CHECK(dispatch_to(refused, second));
  play(shard, up(3), kStart, up_again);
  CHECK(dispatch_to(up_again, kSecond.node));
}
