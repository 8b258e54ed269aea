#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "runtime/hidden_limits.h"
#include "tests/actors/replica/stage.h"

using namespace troupe;
using namespace troupe::testing;

TEST_CASE("a sequence is generated, its start told once") {
  Stage stage(small());
  const Submit submit = request(1, 9, 12);
  stage.send(submit);
  REQUIRE(stage.told.size() == 1);
  CHECK(stage.told[0].started);
  stage.run();
  CHECK(stage.tokens_of(1) == expected_of(submit).output);
  CHECK(stage.last_of(1).finish == FinishReason::kLength);
  stage.check_empty();
  CHECK(!stage.wake_at);
}

TEST_CASE("a stop token ends a sequence and is part of it") {
  for (std::uint64_t id = 1; id < 40; ++id) {
    Stage stage(small());
    Submit submit = request(id, 5, 50);
    submit.stop_tokens = {kEos};
    stage.send(submit);
    stage.run();
    const Expected expected = expected_of(submit);
    CHECK(stage.tokens_of(id) == expected.output);
    CHECK(stage.last_of(id).finish == expected.finish);
  }
}

TEST_CASE("the context's end finishes a sequence") {
  Stage stage(small());
  Submit submit = request(1, 60, 50);
  stage.send(submit);
  stage.run();
  CHECK(stage.tokens_of(1).size() == 4);
  CHECK(stage.last_of(1).finish == FinishReason::kLength);
}

TEST_CASE("a sequence resumed from any of its tokens gives the rest exactly") {
  const Submit whole = request(3, 11, 20);
  const Expected expected = expected_of(whole);
  for (std::size_t n = 0; n < expected.output.size(); ++n) {
    Stage stage(small());
    Submit submit = whole;
    submit.attempt = 1;
    for (std::size_t i = 0; i < n; ++i) submit.output.push_back(expected.output[i].token);
    stage.send(submit);
    stage.run();
    const std::vector<TokenOutput> rest(expected.output.begin() + static_cast<std::ptrdiff_t>(n),
                                        expected.output.end());
    CHECK(stage.tokens_of(3) == rest);
    CHECK(stage.told.at(1).index == n);
    stage.check_empty();
  }
}

TEST_CASE("a sequence resumed where it had ended ends at once") {
  Stage stage(small());
  Submit submit = request(3, 11, 2);
  submit.output = {1, 2};
  stage.send(submit);
  CHECK(stage.last_of(3).finish == FinishReason::kLength);
  CHECK(stage.last_of(3).index == 2);
  stage.check_empty();
}

TEST_CASE("preemption changes no token") {
  ReplicaConfig config = small();
  config.blocks = 9;
  Stage stage(config);
  std::vector<Submit> submits;
  for (std::uint64_t id = 1; id <= 4; ++id) {
    submits.push_back(request(id, 10, 20));
    submits.back().prompt_logprobs = 2;
    submits.back().sampling.top_logprobs = id % 2 == 0 ? -1 : 3;
    stage.send(submits.back());
  }
  stage.run();
  CHECK(stage.replica.report().preemptions > 0);
  for (const Submit& submit : submits) {
    const Expected expected = expected_of(submit);
    CHECK(stage.tokens_of(submit.sequence.value) == expected.output);
    std::vector<TokenOutput> scored;
    for (const auto& event : stage.told) {
      if (event.sequence != submit.sequence || event.prompt_logprobs.empty()) continue;
      CHECK(event.prompt_index == scored.size() + 1);
      scored.insert(scored.end(), event.prompt_logprobs.begin(), event.prompt_logprobs.end());
    }
    CHECK(scored == expected.prompt_logprobs);
  }
  stage.check_empty();
}

TEST_CASE("a prompt is scored in chunks, with nothing generated") {
  ReplicaConfig config = small();
  config.max_num_batched_tokens = 4;
  Stage stage(config);
  Submit submit = request(1, 19, 0);
  submit.prompt_logprobs = 0;
  stage.send(submit);
  stage.run();
  std::vector<TokenOutput> scored;
  for (const auto& event : stage.told)
    scored.insert(scored.end(), event.prompt_logprobs.begin(), event.prompt_logprobs.end());
  CHECK(scored == expected_of(submit).prompt_logprobs);
  CHECK(stage.tokens_of(1).empty());
  CHECK(stage.last_of(1).finish == FinishReason::kLength);
  stage.check_empty();
}

TEST_CASE("hidden states of a prompt come once each, in chunks, and nothing is generated") {
  for (const Pooling pooling : {Pooling::kLast, Pooling::kAll}) {
    ReplicaConfig config = small();
    config.blocks = 9;
    config.max_num_batched_tokens = 7;
    Stage stage(config);
    std::vector<Submit> submits;
    for (std::uint64_t id = 1; id <= 3; ++id) {
      submits.push_back(request(id, 19, 0));
      submits.back().pooling = pooling;
      submits.back().hidden_width = kHiddenWidth;
      stage.send(submits.back());
      stage.send(request(10 + id, 10, 20));
    }
    stage.run();
    for (const Submit& submit : submits) {
      std::vector<float> hidden;
      for (const auto& event : stage.told) {
        if (event.sequence != submit.sequence || event.hidden.empty()) continue;
        CHECK(event.hidden_index == hidden.size());
        hidden.insert(hidden.end(), event.hidden.begin(), event.hidden.end());
      }
      CHECK(hidden == expected_hidden(submit.prompt, pooling));
      CHECK(stage.tokens_of(submit.sequence.value).empty());
      CHECK(stage.last_of(submit.sequence.value).finish == FinishReason::kLength);
    }
    stage.check_empty();
  }
}

TEST_CASE("a step yields no more hidden states than can travel") {
  Stage stage(small());
  Submit submit = request(1, 19, 0);
  submit.pooling = Pooling::kAll;
  submit.hidden_width = limits::kStepHiddenBytesMax / sizeof(float) / 5;
  stage.send(submit);
  REQUIRE(stage.plans.size() == 1);
  const StepSequence& rows = stage.plans[0].sequences.at(0);
  CHECK(rows.tokens.size() == 5);
  CHECK(rows.hidden_rows == 5);
}

TEST_CASE("what cannot fit alone is a clear error, when it is known") {
  ReplicaConfig config = small();
  config.blocks = 3;
  Stage stage(config);
  stage.send(request(1, 13, 1));
  REQUIRE(stage.last_of(1).error);
  CHECK(stage.last_of(1).error->code == ErrorCode::kResourceExhausted);

  stage.send(request(2, 10, 9));
  stage.run();
  REQUIRE(stage.last_of(2).error);
  CHECK(stage.tokens_of(2).size() == 3);  // The 13th token has no block.
  CHECK(stage.last_of(2).error->message.find("--kv-cache-memory") != std::string::npos);
  stage.check_empty();
}

TEST_CASE("a cancelled sequence leaves at once, from a step when it ends") {
  Stage stage(small());
  stage.send(request(1, 9, 12));
  stage.send(Submit(request(2, 9, 12)));
  CHECK(stage.replica.report().waiting == 1);
  stage.send(Cancel{SequenceId{2}, 0});
  CHECK(stage.replica.report().waiting == 0);
  stage.send(Cancel{SequenceId{1}, 0});
  CHECK(stage.replica.report().kv_blocks_used == 3);
  stage.told.clear();
  stage.run();
  CHECK(stage.told.empty());
  stage.check_empty();
}

TEST_CASE("orders of another head than its own are refused") {
  Stage stage(small());
  const Address older{kHeadNode, Incarnation{0}, kRouter.actor};
  const Address newer{kHeadNode, Incarnation{2}, kRouter.actor};
  const auto refusals = [&](const Message& message, const Address& from) {
    Replica::Effects effects;
    turn(stage.replica, {from, kSelf, std::make_shared<const Message>(message)}, stage.now,
         effects);
    std::size_t count = 0;
    for (const auto& send : all<Send>(effects))
      count += send.to == from && std::holds_alternative<Undeliverable>(*send.message);
    return count;
  };
  for (const Address& other : {older, newer}) CHECK(refusals(request(1, 6, 4), other) == 1);
  stage.check_empty();
  stage.send(request(1, 6, 4));
  for (const Address& other : {older, newer, Address{kSupervisor}})
    CHECK(refusals(Cancel{SequenceId{1}, 0}, other) == 1);
  stage.head_changed(newer.incarnation);
  stage.run();
  stage.check_empty();
  CHECK(refusals(request(2, 6, 4), kRouter) == 1);
  CHECK(refusals(request(2, 6, 4), newer) == 0);
}

TEST_CASE(
    "a newer attempt takes the place of an older one; an older or equal one changes nothing") {
  Stage stage(small());
  Submit submit = request(1, 9, 6);
  stage.send(submit);
  submit.attempt = 2;
  stage.send(submit);
  stage.send(submit);
  submit.attempt = 1;
  stage.send(submit);
  stage.send(Cancel{submit.sequence, 1});
  stage.told.clear();
  stage.run();
  for (const auto& event : stage.told) CHECK(event.attempt == 2);
  CHECK(stage.tokens_of(1) == expected_of(submit).output);
  stage.check_empty();
}

TEST_CASE("a step that fails for a passing reason is aborted everywhere and run again") {
  for (const auto& reason : {unavailable("node-2 is gone"), deadline_exceeded("too slow"),
                             resource_exhausted("the queue is full")}) {
    Stage stage(small());
    const Submit submit = request(1, limits::kChunkRowsLeast, 6);
    stage.send(submit);
    const StepPlanBody plan = stage.plans.at(0);
    const Address stranger{NodeId{9}, Incarnation{1}, {ActorKind::kLayerShard, 0}};
    stage.send(StepFailed{0, plan.step, reason}, stranger);
    CHECK(stage.aborted.empty());
    stage.told.clear();
    stage.send(StepFailed{0, plan.step, reason}, kFirstShard);
    CHECK(stage.aborted == std::vector<StepId>{plan.step});
    CHECK(stage.told.empty());
    stage.send(stage.result_of(plan), kLastShard);  // Too late: it no longer counts.
    CHECK(stage.told.empty());
    CHECK(stage.plans.size() == 1);  // Not at once.
    CHECK(stage.wake_at == stage.now + kStepRetryMin);
    stage.wake(kStepRetryMin);
    REQUIRE(stage.plans.size() == 2);
    CHECK(stage.plans[1].sequences == plan.sequences);
    stage.plans.erase(stage.plans.begin());
    stage.run();
    CHECK(stage.tokens_of(1) == expected_of(submit).output);
    stage.check_empty();
  }
}

TEST_CASE("a step that fails for another reason ends the sequence that was alone in it") {
  for (const auto& reason : {internal_error("a defect"), invalid_argument("odd")}) {
    Stage stage(small());
    stage.send(request(1, 9, 6));
    stage.send(StepFailed{0, stage.plans.at(0).step, reason}, kFirstShard);
    REQUIRE(stage.aborted.size() == 1);
    CHECK(stage.last_of(1).error->message == reason.message);
    CHECK(stage.last_of(1).error->code == reason.code);
    stage.check_empty();
  }
}

TEST_CASE("the pause before the next try grows to a bound, and a success ends it") {
  Stage stage(small());
  stage.send(request(1, 9, 6));
  Duration pause = kStepRetryMin;
  for (std::uint32_t i = 1; i < kStepFailuresMax; ++i) {
    stage.send(StepFailed{0, stage.plans.back().step, unavailable("gone")}, kLastShard);
    CHECK(stage.wake_at == stage.now + pause);
    stage.wake(pause);
    pause = std::min(2 * pause, kStepRetryMax);
  }
  CHECK(pause == kStepRetryMax);
  stage.send(stage.result_of(stage.plans.back()), kLastShard);
  stage.send(StepFailed{0, stage.plans.back().step, unavailable("gone")}, kLastShard);
  CHECK(stage.wake_at == stage.now + kStepRetryMin);
}

TEST_CASE("a sequence whose steps fail without end is given back to the Router") {
  Stage stage(small());
  stage.send(request(1, 9, 6));
  for (std::uint32_t i = 0; i < kStepFailuresMax; ++i) {
    REQUIRE(!stage.last_of(1).error);
    stage.send(StepFailed{0, stage.plans.back().step, resource_exhausted("full")}, kLastShard);
    stage.wake(kStepRetryMax);
  }
  REQUIRE(stage.last_of(1).error);
  CHECK(stage.last_of(1).error->code == ErrorCode::kUnavailable);
  CHECK(stage.last_of(1).error->message ==
        "Steps of this request alone fail where it is: full");
  stage.check_empty();
}

TEST_CASE("what lacks memory has seconds to find some, also where others' steps succeed") {
  ReplicaConfig config = small();
  SUBCASE("there are blocks for all") { config.blocks = 64; }
  SUBCASE("it has blocks that the others need") { config.blocks = 16; }
  Stage stage(config);
  const Submit decoding = request(1, 2, 60), lacking = request(2, 9, 6);
  stage.send(decoding);
  stage.run_one();
  stage.send(lacking);
  const TimePoint begun = stage.now;
  const Duration step = std::chrono::milliseconds(1);
  std::uint32_t failures = 0;
  while (!stage.gave_up(2)) {
    REQUIRE(stage.now - begun < std::chrono::seconds(20));
    stage.wake(step);
    if (stage.plans.empty()) continue;
    const StepPlanBody plan = stage.plans.front();
    stage.plans.erase(stage.plans.begin());
    const bool lacks = std::ranges::any_of(
        plan.sequences, [&](const auto& sequence) { return sequence.id == lacking.sequence; });
    failures += lacks ? 1 : 0;
    if (lacks)
      stage.send(StepFailed{0, plan.step, resource_exhausted("memory is short.")}, kLastShard);
    else
      stage.send(stage.result_of(plan), kLastShard);
  }
  CHECK(failures == kStepFailuresMax);
  CHECK(stage.last_of(2).error->code == ErrorCode::kUnavailable);  // not its fault
  if (config.blocks < 64) return;
  CHECK(stage.now - begun > std::chrono::seconds(1));
  CHECK(stage.tokens_of(1).size() == 60);  // and the others did not wait for it
}

TEST_CASE("one poisonous sequence does not hold the others up") {
  for (const std::int32_t blocks : {64, 16}) {  // With 16 they also preempt each other.
    ReplicaConfig config = small();
    config.blocks = blocks;
    Stage stage(config);
    std::vector<Submit> submits;
    for (std::uint64_t id = 1; id <= 5; ++id) {
      submits.push_back(request(id, 10, 12));
      stage.send(submits.back());
    }
    const SequenceId poison{3};
    std::size_t alone = 0;
    for (int steps = 0; stage.replica.report().running + stage.replica.report().waiting > 0;
         ++steps) {
      REQUIRE(steps < 500);
      if (stage.plans.empty()) {
        stage.wake(kStepRetryMax);
        continue;
      }
      const StepPlanBody plan = stage.plans.front();
      stage.plans.erase(stage.plans.begin());
      bool poisoned = false;
      for (const auto& sequence : plan.sequences) poisoned |= sequence.id == poison;
      if (poisoned && plan.sequences.size() == 1) ++alone;
      if (poisoned)
        stage.send(StepFailed{0, plan.step, unavailable("a kernel threw")}, kLastShard);
      else
        stage.send(stage.result_of(plan), kLastShard);
    }
    CHECK(alone == kStepFailuresMax - kStepFailuresSuspect);
    for (const Submit& submit : submits) {
      const std::uint64_t id = submit.sequence.value;
      if (submit.sequence == poison) {
        CHECK(stage.last_of(id).error.has_value());
      } else {
        CHECK(stage.tokens_of(id) == expected_of(submit).output);
      }
    }
    stage.check_empty();
  }
}

TEST_CASE("steps are run again when a node of theirs cannot be reached any more") {
  Stage stage(small());
  const Submit submit = request(1, 9, 6);
  stage.send(submit);
  for (const NodeId node : {NodeId{7}, NodeId{2}}) {
    stage.peer_down(node);
    CHECK(stage.aborted.size() == (node == NodeId{2} ? 1 : 0));
  }
  stage.plans.clear();
  stage.wake(kStepRetryMin);
  stage.run();
  CHECK(stage.tokens_of(1) == expected_of(submit).output);
}

TEST_CASE("a cancelled sequence goes when its step fails") {
  Stage stage(small());
  stage.send(request(1, 9, 6));
  stage.send(Cancel{SequenceId{1}, 0});
  stage.send(StepFailed{0, stage.plans.at(0).step, unavailable("gone")}, kLastShard);
  stage.check_empty();
}

TEST_CASE("a step that cannot be sent is run again") {
  Stage stage(small());
  stage.send(request(1, 9, 6));
  Undeliverable lost;
  lost.to = kFirstShard;
  lost.kind = static_cast<std::uint32_t>(Message(StepPlan{}).index());
  lost.reference = stage.plans.at(0).step.value;
  lost.error = internal_error("node-1 cannot be reached");
  stage.send(lost, kFirstShard);
  CHECK(stage.aborted.size() == 1);
  CHECK(!stage.last_of(1).error);
  stage.wake(kStepRetryMin);
  CHECK(stage.plans.size() == 2);
}

TEST_CASE("a step that does not come back is given up at its deadline and run again") {
  Stage stage(small());
  stage.send(request(1, 9, 6));
  CHECK(stage.wake_at == TimePoint{} + limits::kStepSilence);
  stage.wake(limits::kStepSilence - std::chrono::seconds(1));
  CHECK(stage.aborted.empty());
  stage.wake(std::chrono::seconds(1));
  REQUIRE(stage.aborted.size() == 1);
  CHECK(!stage.last_of(1).error);
  stage.wake(kStepRetryMin);
  CHECK(stage.plans.size() == 2);
}

TEST_CASE("a result that is not the step's fails it") {
  for (int kind = 0; kind < 5; ++kind) {
    Stage stage(small());
    Submit submit = request(1, 9, 6);
    submit.prompt_logprobs = 0;
    stage.send(submit);
    StepResult result = stage.result_of(stage.plans.at(0));
    if (kind == 0) result.sequences.clear();
    if (kind == 1) result.sequences[0].sampled.reset();
    if (kind == 2) result.sequences[0].prompt.pop_back();
    if (kind == 3) result.sequences[0].prompt.clear();
    if (kind == 4) result.sequences[0].hidden = {1.0f};
    stage.send(result, kLastShard);
    // The last row of a prompt has no target: without it the result is whole.
    CHECK(stage.aborted.size() == (kind != 2 ? 1 : 0));
    CHECK(!stage.last_of(1).error);
  }
}

TEST_CASE("a pipeline's steps share the sequences out") {
  ReplicaConfig config = small();
  config.stages = 2;
  Stage stage(config);
  for (std::uint64_t id = 1; id <= 4; ++id) stage.send(request(id, 2, 6));
  REQUIRE(stage.plans.size() == 2);
  while (!stage.plans.empty()) {
    CHECK(stage.plans.size() <= 2);
    const StepPlanBody plan = stage.plans.front();
    stage.plans.erase(stage.plans.begin());
    stage.send(stage.result_of(plan), kLastShard);
  }
  for (std::uint64_t id = 1; id <= 4; ++id)
    CHECK(stage.tokens_of(id) == expected_of(request(id, 2, 6)).output);
  stage.check_empty();
}

TEST_CASE("steps of two versions of a replica have different numbers") {
  ReplicaConfig config = small();
  Stage before(config);
  config.version = PlacementVersion{4};
  Stage after(config);
  before.send(request(1, 9, 6));
  after.send(request(1, 9, 6));
  CHECK(before.plans.at(0).step < after.plans.at(0).step);
}
