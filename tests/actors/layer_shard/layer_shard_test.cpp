#include "actors/layer_shard/layer_shard.h"

#include <doctest/doctest.h>

#include <memory>
#include <utility>

#include "actors/base/undeliverable.h"
#include "tests/actors/layer_shard/stand.h"

using namespace troupe;
using namespace troupe::testing;

TEST_CASE("a step goes on when every answer and the local work are in, in either order") {
  for (const bool computed_first : {false, true}) {
    LayerShard::Effects asked;
    auto shard = waiting_shard(asked);
    LayerShard::Effects actions;
    if (computed_first) play(shard, StepComputed{StepId{1}, {}}, kStart, actions);
    for (const auto& send : all<Send>(asked))
      play(shard, output_of(std::get<Dispatch>(*send.message), send.to.node), kStart, actions);
    if (!computed_first) {
      CHECK(all<ResumeStep>(actions).empty());
      play(shard, StepComputed{StepId{1}, {}}, kStart, actions);
    }
    REQUIRE(all<ResumeStep>(actions).size() == 1);
    std::size_t outputs = 0;
    all<ResumeStep>(actions)[0].cut.each_answered([&](const auto&, const auto&) { ++outputs; });
    CHECK(outputs == 3);

    ComputeOutcome done;
    done.done = true;
    done.sequences.resize(1);
    LayerShard::Effects last;
    play(shard, StepComputed{StepId{1}, std::move(done)}, kStart, last);
    REQUIRE(heard<StepResult>(last));
    REQUIRE(all<ReleaseStep>(last).size() == 1);
    CHECK(all<ReleaseStep>(last)[0].step == StepId{1});
    CHECK(shard.steps() == 0);
  }
}

TEST_CASE("steps whose hidden rows may be lost on their way to the next stage are failed") {
  LayerShard shard(config(true, false));
  LayerShard::Effects actions, other, lost, again;
  play(shard, plan(3), kStart, actions);
  ComputeOutcome done;
  done.done = true;
  play(shard, StepComputed{StepId{3}, std::move(done)}, kStart, actions);
  play(shard, down(3), kStart, other);
  CHECK(!heard<StepFailed>(other));
  play(shard, down(2), kStart, lost);
  REQUIRE(heard<StepFailed>(lost));
  CHECK(heard<StepFailed>(lost)->step == StepId{3});
  CHECK(heard<StepFailed>(lost)->error.code == ErrorCode::kUnavailable);
  play(shard, down(2), kStart, again);
  CHECK(!heard<StepFailed>(again));
}

TEST_CASE("a step does not go on once its replica's node cannot be reached") {
  LayerShardConfig c = config();
  c.replica = {NodeId{3}, Incarnation{30}, 0};
  LayerShard shard(c);
  const auto planned = [&](std::uint64_t step) {
    Envelope envelope = plan(step);
    envelope.from = c.replica.address;
    return envelope;
  };
  LayerShard::Effects begun, asked, lost, late;
  play(shard, planned(1), kStart, begun);
  play(shard, StepCut{StepId{1}, cut()}, kStart, asked);
  play(shard, StepComputed{StepId{1}, {}}, kStart, asked);
  play(shard, planned(2), kStart, begun);
  play(shard, down(3), kStart, lost);
  // The replica may hear of it over the next connection; its blocks are others' from now on.
  CHECK(sent<StepFailed>(lost).size() == 2);
  REQUIRE(all<ReleaseStep>(lost).size() == 1);
  CHECK(all<ReleaseStep>(lost)[0].step == StepId{1});
  CHECK(shard.steps() == 1);  // a job has the buffers of the other
  ComputeOutcome done;
  done.done = true;
  play(shard, StepComputed{StepId{2}, std::move(done)}, kStart, late);
  CHECK(!heard<StepResult>(late));
  CHECK(shard.steps() == 0);
}

TEST_CASE("what another rank had after all is waited for no more; the next cut asks anyhow") {
  LayerShard::Effects begun, asked, found, next, late, answered;
  LayerShard shard(config());
  play(shard, plan(1), kStart, begun);
  play(shard, StepCut{StepId{1}, cut()}, kStart, asked);
  play(shard, StepFound{StepId{1}}, kStart, found);
  play(shard, StepCut{StepId{1}, cut()}, kStart, next);
  play(shard, StepComputed{StepId{1}, {}}, kStart, next);
  for (const auto& send : all<Send>(asked))
    play(shard, output_of(std::get<Dispatch>(*send.message), send.to.node), kStart, late);
  CHECK(all<ResumeStep>(late).empty());
  CHECK(all<Send>(late).empty());  // and nobody is distrusted
  for (const auto& send : all<Send>(next))
    play(shard, output_of(std::get<Dispatch>(*send.message), send.to.node), kStart, answered);
  CHECK(all<ResumeStep>(answered).size() == 1);
}

TEST_CASE("an aborted step is forgotten: late answers change nothing") {
  LayerShard::Effects asked;
  auto shard = waiting_shard(asked);
  LayerShard::Effects actions;
  play(shard, from(kReplicaAddress, message_of(StepAbort{0, StepId{1}})), kStart, actions);
  for (const auto& send : all<Send>(asked))
    play(shard, output_of(std::get<Dispatch>(*send.message), send.to.node), kStart, actions);
  play(shard, StepComputed{StepId{1}, {}}, kStart, actions);
  CHECK(all<Send>(actions).empty());
  CHECK(all<ResumeStep>(actions).empty());
  CHECK(all<GiveUpStep>(actions).size() == 1);
  CHECK(all<ReleaseStep>(actions).size() == 1);
  CHECK(shard.steps() == 0);
}

TEST_CASE("a later stage begins when both plan and hidden rows are here, in either order") {
  const Envelope hidden =
      from(kPreviousAddress,
           message_of(Hidden{0, StepId{1}, 2, Payload::of(std::make_shared<Buffer>(16))}));
  for (const bool hidden_first : {false, true}) {
    LayerShard shard(config(false));
    LayerShard::Effects actions;
    play(shard, hidden_first ? hidden : plan(1), kStart, actions);
    CHECK(all<BeginStep>(actions).empty());
    play(shard, hidden_first ? plan(1) : hidden, kStart, actions);
    REQUIRE(all<BeginStep>(actions).size() == 1);
    CHECK(all<BeginStep>(actions)[0].hidden.bytes.size() == 16);
    play(shard, hidden, kStart, actions);
    play(shard, plan(1), kStart, actions);
    CHECK(all<BeginStep>(actions).size() == 1);  // duplicates begin nothing
  }
}

TEST_CASE("a canary's digests travel from stage to stage, and to the replica at the end") {
  for (const bool last : {false, true}) {
    LayerShard shard(config(false, last));
    LayerShard::Effects actions;
    Hidden hidden{0, StepId{1}, 2, Payload::of(std::make_shared<Buffer>(16)), {1, 2}};
    play(shard, from(kPreviousAddress, message_of(std::move(hidden))), kStart, actions);
    play(shard, plan(1), kStart, actions);
    ComputeOutcome done;
    done.done = true;
    done.digests = {3, 4};
    play(shard, StepComputed{StepId{1}, std::move(done)}, kStart, actions);
    const std::vector<std::uint64_t> expected = {1, 2, 3, 4};
    if (last) {
      REQUIRE(heard<StepResult>(actions));
      CHECK(heard<StepResult>(actions)->digests == expected);
    } else {
      REQUIRE(heard<Hidden>(actions));
      CHECK(heard<Hidden>(actions)->digests == expected);
    }
  }
}

TEST_CASE("hidden rows of an aborted step, or of a stranger, leave nothing behind") {
  LayerShard shard(config(false));
  LayerShard::Effects actions;
  const auto hidden =
      message_of(Hidden{0, StepId{1}, 2, Payload::of(std::make_shared<Buffer>(16))});
  play(shard, from({NodeId{3}, Incarnation{30}, {ActorKind::kLayerShard, 0}}, hidden), kStart,
       actions);
  CHECK(shard.steps() == 0);
  play(shard,
       from({NodeId{3}, Incarnation{30}, {ActorKind::kReplica, 0}},
            message_of(StepAbort{0, StepId{1}})),
       kStart, actions);
  play(shard, from(kPreviousAddress, hidden), kStart, actions);
  CHECK(shard.steps() == 1);  // a stranger's abort does not count
  play(shard, from(kReplicaAddress, message_of(StepAbort{0, StepId{1}})), kStart, actions);
  play(shard, from(kPreviousAddress, hidden), kStart, actions);
  CHECK(shard.steps() == 0);
}

TEST_CASE("only its own replica plans for a shard") {
  LayerShard shard(config());
  LayerShard::Effects actions;
  Envelope stranger = plan(1);
  stranger.from.incarnation = Incarnation{9};
  play(shard, stranger, kStart, actions);
  CHECK(all<BeginStep>(actions).empty());
  CHECK(shard.steps() == 0);
}

TEST_CASE("an abort follows hidden rows to the next stage, whose own may be lost with a link") {
  LayerShard shard(config(true, false));
  LayerShard::Effects passed, aborted, again;
  play(shard, plan(3), kStart, passed);
  ComputeOutcome done;
  done.done = true;
  play(shard, StepComputed{StepId{3}, std::move(done)}, kStart, passed);
  const Send hidden = all<Send>(passed).at(0);
  REQUIRE(std::holds_alternative<Hidden>(*hidden.message));
  const auto abort = from(kReplicaAddress, message_of(StepAbort{0, StepId{3}}));
  play(shard, abort, kStart, aborted);
  REQUIRE(heard<StepAbort>(aborted));
  CHECK(heard<StepAbort>(aborted)->step == StepId{3});
  CHECK(all<Send>(aborted).at(0).to == hidden.to);
  play(shard, abort, kStart, again);
  CHECK(!heard<StepAbort>(again));
}

TEST_CASE("hidden rows without a plan go with an abort or the link of the stage before") {
  const Envelope hidden =
      from(kPreviousAddress,
           message_of(Hidden{0, StepId{1}, 2, Payload::of(std::make_shared<Buffer>(16))}));
  LayerShard shard(config(false));
  LayerShard::Effects actions;
  play(shard, hidden, kStart, actions);
  REQUIRE(shard.steps() == 1);
  SUBCASE("with its abort: a plan that comes later begins nothing") {
    play(shard, from(kPreviousAddress, message_of(StepAbort{0, StepId{1}})), kStart, actions);
    CHECK(shard.steps() == 0);
    play(shard, plan(1), kStart, actions);
  }
  SUBCASE("with its link") { play(shard, down(kPreviousAddress.node.value), kStart, actions); }
  CHECK(shard.steps() == 0);
  CHECK(all<BeginStep>(actions).empty());
}

TEST_CASE("a middle stage passes its hidden rows on") {
  LayerShard shard(config(true, false));
  LayerShard::Effects actions;
  play(shard, plan(3), kStart, actions);
  ComputeOutcome done;
  done.done = true;
  done.hidden = Payload::of(std::make_shared<Buffer>(32));
  play(shard, StepComputed{StepId{3}, std::move(done)}, kStart, actions);
  REQUIRE(heard<Hidden>(actions));
  CHECK(heard<Hidden>(actions)->rows == 2);
  CHECK(all<Send>(actions).back().to.actor.index == 16);
}

TEST_CASE("what did not arrive at the next stage, or at the Replica, fails the step at once") {
  for (const bool last : {false, true}) {
    LayerShard shard(config(true, last));
    LayerShard::Effects passed_on, lost;
    play(shard, plan(3), kStart, passed_on);
    ComputeOutcome done;
    done.done = true;
    play(shard, StepComputed{StepId{3}, std::move(done)}, kStart, passed_on);
    CHECK(shard.steps() == 0);
    const Send send = all<Send>(passed_on).at(0);
    const Envelope unsent{config().self.address, send.to, send.message};
    play(shard, from(send.to, message_of(undeliverable(unsent, unavailable("cut off")))), kStart,
         lost);
    REQUIRE(heard<StepFailed>(lost));
    CHECK(heard<StepFailed>(lost)->step == StepId{3});
    CHECK(heard<StepFailed>(lost)->error.message == "cut off");
    CHECK(all<Send>(lost)[0].to == kReplicaAddress);
    // It is told once: the node that goes down later says nothing new.
    LayerShard::Effects again;
    play(shard, down(2), kStart, again);
    CHECK(again.list().empty());
  }
}

TEST_CASE("a failure that cannot be told is not told again") {
  LayerShard shard(config());
  LayerShard::Effects effects;
  const Envelope unsent{config().self.address, kReplicaAddress,
                        message_of(StepFailed{0, StepId{3}, unavailable("lost")})};
  play(shard, from(kReplicaAddress, message_of(undeliverable(unsent, unavailable("cut off")))),
       kStart, effects);
  CHECK(effects.list().empty());
}

TEST_CASE("a step's end is told before its buffers are used again") {
  for (const bool fails : {false, true}) {
    LayerShard shard(config());
    LayerShard::Effects begun, ended;
    play(shard, plan(1), kStart, begun);
    ComputeOutcome outcome;
    outcome.done = !fails;
    if (fails) outcome.error = internal_error("odd");
    play(shard, StepComputed{StepId{1}, std::move(outcome)}, kStart, ended);
    REQUIRE(ended.list().size() == 2);
    CHECK(std::holds_alternative<Send>(ended.list()[0]));
    CHECK(std::holds_alternative<ReleaseStep>(ended.list()[1]));
    CHECK((heard<StepFailed>(ended) != nullptr) == fails);
  }
}

TEST_CASE("an actor's first turn asks for nothing") {
  LayerShard shard(config());
  LayerShard::Effects effects;
  play_wake(shard, kStart, effects);
  CHECK(effects.list().empty());
  CHECK(!effects.wake());
}

TEST_CASE("what ranks are at ends when one of them is down, or a message to one is lost") {
  LayerShardConfig with_ranks = config();
  with_ranks.rank = {0, 2};
  with_ranks.ranks = {with_ranks.self, {NodeId{2}, Incarnation{20}, 1}};
  const auto lost_ranks = [](const LayerShard::Effects& actions) {
    return all<LoseRank>(actions).size();
  };
  LayerShard shard(with_ranks);
  LayerShard::Effects actions, other, gone;
  play(shard, plan(1), kStart, actions);
  play(shard, down(3), kStart, other);
  CHECK(lost_ranks(other) == 0);
  play(shard, down(2), kStart, gone);
  CHECK(lost_ranks(gone) == 1);
  CHECK(heard<StepFailed>(gone));

  LayerShard again(with_ranks);
  LayerShard::Effects begun, turn, news;
  play(again, plan(1), kStart, begun);
  const Address rank{NodeId{2}, Incarnation{20}, {ActorKind::kRank, 1}};
  const auto undelivered = [&](Message message) {
    const Envelope envelope{with_ranks.self.address, rank, message_of(std::move(message))};
    return from(rank, message_of(undeliverable(envelope, unavailable("it is full"))));
  };
  play(again, undelivered(RankGroup{}), kStart, news);
  CHECK(lost_ranks(news) == 1);
  CHECK(!heard<StepFailed>(news));
  play(again, undelivered(RankGo{1, 1, 1, StepId{1}, 1, true, {}}), kStart, turn);
  CHECK(lost_ranks(turn) == 1);
  CHECK(heard<StepFailed>(turn));
}
