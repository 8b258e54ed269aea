// What sequences that share steps may do to each other, and how long and large a step may be.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include "runtime/limits.h"
#include "tests/actors/replica/stage.h"

using namespace troupe;
using namespace troupe::testing;
using namespace std::chrono_literals;

TEST_CASE("a step lasts as long as its shards say that it goes on, but not for ever") {
  Stage stage(small());
  const Submit submit = request(1, 9, 6);
  stage.send(submit);
  const StepPlanBody plan = stage.plans.at(0);
  const Address stranger{NodeId{9}, Incarnation{1}, {ActorKind::kLayerShard, 0}};
  const Duration most = limits::kStepTimeMax - limits::kProgressEvery;
  while (stage.now < TimePoint{} + most) {
    stage.wake(limits::kProgressEvery);
    stage.send(StepProgress{0, plan.step}, kFirstShard);
    REQUIRE(stage.aborted.empty());
  }
  CHECK(stage.wake_at == TimePoint{} + limits::kStepTimeMax);
  SUBCASE("its result counts") {
    stage.run();
    CHECK(stage.tokens_of(1) == expected_of(submit).output);
  }
  SUBCASE("it is too long in all") {
    stage.wake(limits::kProgressEvery);
    CHECK(stage.aborted.size() == 1);
  }
  SUBCASE("what others say, or of other steps, does not count") {
    Stage other(small());
    other.send(request(1, 9, 6));
    const StepId step = other.plans.at(0).step;
    other.wake(limits::kStepSilence / 2);
    other.send(StepProgress{0, step}, stranger);
    other.send(StepProgress{1, step}, kFirstShard);
    other.send(StepProgress{0, StepId{step.value + 1}}, kFirstShard);
    CHECK(other.wake_at == TimePoint{} + limits::kStepSilence);
  }
}

TEST_CASE("a row without numbers ends its own sequence and nobody else's") {
  Stage stage(small());
  std::vector<Submit> submits;
  for (std::uint64_t id = 1; id <= 4; ++id) submits.push_back(request(id, 5 + id, 12));
  submits[2].prompt_logprobs = 1;
  for (const Submit& submit : submits) stage.send(submit);
  const SequenceId bad{3};
  for (bool hit = false; !stage.plans.empty();) {
    const StepPlanBody plan = stage.plans.front();
    stage.plans.erase(stage.plans.begin());
    StepResult result = stage.result_of(plan);
    for (SequenceResult& sequence : result.sequences)
      if (sequence.id == bad && std::exchange(hit, true) == false)
        sequence = {bad, {}, {}, "no number"};
    stage.send(result, kLastShard);
  }
  CHECK(stage.aborted.empty());
  REQUIRE(stage.last_of(3).error);
  CHECK(stage.last_of(3).error->code == ErrorCode::kInternal);
  CHECK(stage.last_of(3).error->message == "no number");
  CHECK(stage.tokens_of(3).empty());
  for (const std::uint64_t id : {1, 2, 4})
    CHECK(stage.tokens_of(id) == expected_of(submits[id - 1]).output);
  stage.check_empty();
}

TEST_CASE("a defect that one sequence meets ends that one, and no other of its step") {
  Stage stage(small());
  std::vector<Submit> submits;
  for (std::uint64_t id = 1; id <= 5; ++id) {
    submits.push_back(request(id, 6, 8));
    stage.send(submits.back());
  }
  const SequenceId odd{4};
  for (int steps = 0; stage.replica.report().running + stage.replica.report().waiting > 0;
       ++steps) {
    REQUIRE(steps < 200);
    if (stage.plans.empty()) {
      stage.wake(kStepRetryMax);
      continue;
    }
    const StepPlanBody plan = stage.plans.front();
    stage.plans.erase(stage.plans.begin());
    const bool fails = std::any_of(plan.sequences.begin(), plan.sequences.end(),
                                   [&](const StepSequence& s) { return s.id == odd; });
    if (fails)
      stage.send(StepFailed{0, plan.step, invalid_argument("has an odd token")}, kLastShard);
    else
      stage.send(stage.result_of(plan), kLastShard);
  }
  REQUIRE(stage.last_of(4).error);
  CHECK(stage.last_of(4).error->message == "has an odd token");
  CHECK(stage.last_of(4).error->code == ErrorCode::kInvalidArgument);
  for (const std::uint64_t id : {1, 2, 3, 5})
    CHECK(stage.tokens_of(id) == expected_of(submits[id - 1]).output);
  stage.check_empty();
}

TEST_CASE("those who stream already come before new ones, and those who decode before both") {
  ReplicaConfig config = small();
  config.max_num_batched_tokens = 8;
  Stage stage(config);
  stage.send(request(1, 3, 40));
  stage.send(stage.result_of(stage.plans.at(0)), kLastShard);  // 1 decodes, the step is under way
  stage.send(request(2, 20, 4));
  Submit replay = request(3, 12, 20);
  const Expected expected = expected_of(replay);
  for (std::size_t i = 0; i < 6; ++i) replay.output.push_back(expected.output[i].token);
  stage.send(replay);
  stage.plans.erase(stage.plans.begin());
  std::vector<std::uint64_t> order;
  for (bool all = false; !all;) {
    const StepPlanBody plan = stage.plans.at(0);
    stage.plans.erase(stage.plans.begin());
    for (const StepSequence& sequence : plan.sequences)
      if (sequence.tokens.size() > 1) order.push_back(sequence.id.value);
    stage.send(stage.result_of(plan), kLastShard);
    const auto& next = stage.plans.at(0).sequences;
    REQUIRE(std::any_of(next.begin(), next.end(),
                        [](const StepSequence& s) { return s.id == SequenceId{1}; }));
    all = !stage.tokens_of(2).empty();
  }
  CHECK(std::is_sorted(order.rbegin(), order.rend()));
  CHECK(order.front() == 3);
  CHECK(stage.tokens_of(3).front() == expected.output[6]);
}

TEST_CASE("a burst gets steps long enough to be efficient; one prompt beside streams does not") {
  ReplicaConfig config = small();
  config.max_num_batched_tokens = 4096;
  config.max_num_seqs = 64;
  config.max_model_len = 2048;
  config.blocks = 2048;
  Stage stage(config);
  // Of a mixture of experts: the more rows, the more of the experts are read, up to all.
  const auto took = [](std::size_t rows) {
    const double read = 1 - std::pow(0.97, static_cast<double>(rows));
    return 5ms + rows * 100us + std::chrono::microseconds(std::lround(100'000 * read));
  };
  const auto run_one = [&] {
    std::size_t rows = 0;
    for (const StepSequence& s : stage.plans.at(0).sequences) rows += s.tokens.size();
    stage.now += took(rows);
    stage.run_one();
    return rows;
  };
  std::uint64_t asked = 0;
  const auto ask = [&](std::size_t prompt, std::uint32_t answer) {
    Submit submit = request(++asked, prompt, answer);
    submit.prompt.front() = static_cast<TokenId>(asked);
    stage.send(submit);
  };
  ask(2000, 4);  // It learns what steps take.
  while (!stage.plans.empty()) run_one();
  for (int i = 0; i < 4; ++i) ask(8, 600);
  for (int i = 0; i < 20; ++i) run_one();
  // Beside streams, too, it learns first.
  std::size_t longest = 0;
  for (int i = 0; i < 2; ++i) {
    ask(512, 4);
    longest = 0;
    while (stage.tokens_of(asked).empty()) longest = std::max(longest, run_one());
  }
  CHECK(took(longest) <= 2.5 * took(4));

  const std::size_t prompt = 32, several = 16;
  for (std::size_t i = 0; i < several; ++i) ask(prompt, 100);
  run_one();  // The step that was under way.
  const TimePoint begun = stage.now;
  while (stage.tokens_of(asked).empty()) run_one();
  CHECK(stage.now - begun <= 2.5 * took(several * prompt));
  while (!stage.plans.empty()) run_one();
  stage.check_empty();
}

TEST_CASE("a step is cut by bytes, whatever its rows' limit is") {
  ReplicaConfig config = small();
  config.max_num_batched_tokens = 1 << 20;
  config.max_num_seqs = 65536;
  config.blocks = limits::kStepBlocksMax + 5;
  config.row_bytes = limits::kBulkPayloadBytesMax / 6;
  Stage stage(config);
  const Submit submit = request(1, 40, 4);
  stage.send(submit);
  stage.send(request(2, 3, 30));
  while (!stage.plans.empty()) {
    const StepPlanBody plan = stage.plans.front();
    stage.plans.erase(stage.plans.begin());
    std::size_t rows = 0;
    for (const StepSequence& sequence : plan.sequences) rows += sequence.tokens.size();
    CHECK(rows * config.row_bytes <= limits::kBulkPayloadBytesMax);
    stage.send(stage.result_of(plan), kLastShard);
  }
  CHECK(stage.tokens_of(1) == expected_of(submit).output);
  CHECK(stage.replica.report().kv_blocks_total == limits::kStepBlocksMax);
}
