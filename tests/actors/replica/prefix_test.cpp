#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "runtime/limits.h"
#include "tests/actors/replica/stage.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

/// Rows that the shards computed, until all is done.
std::int32_t rows_run(Stage& stage) {
  std::size_t rows = 0;
  while (!stage.plans.empty()) {
    const StepPlanBody plan = stage.plans.front();
    stage.plans.erase(stage.plans.begin());
    for (const StepSequence& sequence : plan.sequences) rows += sequence.tokens.size();
    stage.send(stage.result_of(plan), kLastShard);
  }
  return static_cast<std::int32_t>(rows);
}

/// What the Router hears when a sequence begins.
const SequenceEvent& start_of(const Stage& stage, std::uint64_t id) {
  const auto found = std::ranges::find_if(stage.told, [&](const SequenceEvent& event) {
    return event.sequence.value == id && event.started;
  });
  REQUIRE(found != stage.told.end());
  return *found;
}

Submit like(const Submit& other, std::uint64_t id) {
  Submit submit = other;
  submit.sequence = SequenceId{id};
  return submit;
}

void check_tokens(const Stage& stage, const Submit& submit) {
  CHECK(stage.tokens_of(submit.sequence.value) == expected_of(submit).output);
}

}  // namespace

TEST_CASE("a prompt that began like an earlier one is computed from where they differ") {
  Stage stage(small());
  const Submit first = request(1, 18, 6);
  stage.send(first);
  CHECK(rows_run(stage) == 18 + 5);
  CHECK(start_of(stage, 1).cached_tokens == 0);
  stage.check_empty();
  CHECK(stage.replica.report().kv_blocks_cached == 5);

  Submit second = like(first, 2);
  second.prompt[13] = 49;
  stage.send(second);
  CHECK(start_of(stage, 2).cached_tokens == 12);
  CHECK(rows_run(stage) == 6 + 5);
  check_tokens(stage, first);
  check_tokens(stage, second);
  stage.check_empty();
}

TEST_CASE("another head's questions find what an earlier head's left, and nothing else of them") {
  Stage stage(small());
  const Submit first = request(1, 18, 20);
  stage.send(first);
  for (int step = 0; step < 3; ++step) {
    const StepPlanBody plan = stage.plans.front();
    stage.plans.erase(stage.plans.begin());
    stage.send(stage.result_of(plan), kLastShard);
  }
  stage.send(request(2, 9, 4));  // it waits, for the other is in a step
  const std::size_t told = stage.told.size();
  stage.head_changed(std::nullopt);
  CHECK(stage.replica.report().waiting == 0);
  CHECK(rows_run(stage) > 0);  // the step that was under way
  CHECK(stage.told.size() == told);
  stage.check_empty();
  CHECK(stage.replica.report().kv_blocks_cached >= 4);
  // What the head that is gone still had on its way counts no more.
  stage.send(request(3, 9, 4));
  CHECK(stage.replica.report().waiting == 0);
  stage.head_changed(kRouter.incarnation);
  // The same request has the same number there: it begins again, with what is known of it so far.
  Submit again = first;
  for (const TokenOutput& token : stage.tokens_of(1)) again.output.push_back(token.token);
  stage.send(again);
  CHECK(start_of(stage, 1).cached_tokens == 0);  // the first start
  CHECK(stage.told.back().cached_tokens >= 16);
  rows_run(stage);
  stage.check_empty();
}

TEST_CASE("a head that the replica has not heard of yet may have it forget") {
  Stage stage(small());
  stage.send(request(1, 18, 6));
  rows_run(stage);
  REQUIRE(stage.replica.report().kv_blocks_cached > 0);
  const Address next{kHeadNode, Incarnation{4000}, {ActorKind::kSupervisor, 0}};
  stage.send(ForgetPrefixes{stage.config.id}, next);
  stage.send(like(request(1, 18, 6), 2));
  CHECK(start_of(stage, 2).cached_tokens == 0);
  rows_run(stage);
}

TEST_CASE("choices of one prompt compute it once") {
  for (const std::int32_t chunk : {32, 8}) {
    auto config = small();
    config.max_num_batched_tokens = chunk;
    Stage stage(config);
    const Submit before = request(9, 3, 2);  // in a step while the choices come
    stage.send(before);
    std::vector<Submit> choices;
    for (std::uint64_t id = 1; id <= 3; ++id) {
      choices.push_back(like(request(1, 18, 6), id));
      choices.back().sampling.choice = static_cast<std::uint32_t>(id);
    }
    Submit other = like(choices[0], 4);
    other.prompt[15] = 49;  // it differs within the last full block
    for (const Submit& choice : choices) stage.send(choice);
    stage.send(other);
    // 16 of 18 rows lie in full blocks. The other begins beside the first, if a step has room.
    const std::int32_t rows = rows_run(stage);
    CHECK(rows == 4 + 18 + 2 + 2 + 18 - start_of(stage, 4).cached_tokens + 4 * 5);
    CHECK(start_of(stage, 2).cached_tokens == 16);
    CHECK(start_of(stage, 3).cached_tokens == 16);
    for (const Submit& choice : choices) check_tokens(stage, choice);
    check_tokens(stage, other);
    stage.check_empty();
  }
}

TEST_CASE("nobody waits for blocks that may not come") {
  Stage stage(small());
  const Submit first = request(1, 18, 6);
  stage.send(first);
  REQUIRE(stage.plans.size() == 1);
  stage.send(like(first, 2));
  SUBCASE("the first is cancelled") {
    stage.send(Cancel{SequenceId{1}, 0});
    stage.send(stage.result_of(stage.plans.front()), kLastShard);
  }
  SUBCASE("its step fails") {
    stage.send(StepFailed{0, stage.plans.front().step, unavailable("gone")}, kLastShard);
    stage.wake(kStepRetryMin);
  }
  REQUIRE(stage.plans.size() == 2);
  const auto& sequences = stage.plans.back().sequences;
  CHECK(std::ranges::any_of(sequences, [](const auto& s) { return s.id == SequenceId{2}; }));
}

TEST_CASE("the last row of a prompt is computed, for the token after it") {
  Stage stage(small());
  const Submit first = request(1, 16, 1);
  stage.send(first);
  stage.run();
  const Submit second = like(first, 2);
  stage.send(second);
  CHECK(start_of(stage, 2).cached_tokens == 12);
  CHECK(rows_run(stage) == 4);
  check_tokens(stage, second);
}

TEST_CASE("rows that are to be scored are computed") {
  Stage stage(small());
  const Submit first = request(1, 19, 2);
  stage.send(first);
  stage.run();
  Submit second = like(first, 2);
  second.prompt_logprobs = 1;
  stage.send(second);
  CHECK(start_of(stage, 2).cached_tokens == 0);
  CHECK(rows_run(stage) == 19 + 1);
  std::vector<TokenOutput> scored;
  for (const auto& event : stage.told)
    scored.insert(scored.end(), event.prompt_logprobs.begin(), event.prompt_logprobs.end());
  CHECK(scored == expected_of(second).prompt_logprobs);
  check_tokens(stage, second);
}

TEST_CASE("a replay finds its rows, and so does a prompt of the same tokens") {
  Stage stage(small());
  const Submit whole = request(1, 9, 20);
  stage.send(whole);
  stage.run();
  const Expected expected = expected_of(whole);
  Submit replay = like(whole, 2);
  for (std::size_t i = 0; i < 12; ++i) replay.output.push_back(expected.output[i].token);
  stage.send(replay);
  CHECK(start_of(stage, 2).cached_tokens == 20);
  stage.run();
  const std::vector<TokenOutput> rest(expected.output.begin() + 12, expected.output.end());
  CHECK(stage.tokens_of(2) == rest);

  Submit prompt = like(whole, 3);
  prompt.prompt.insert(prompt.prompt.end(), replay.output.begin(), replay.output.end());
  stage.send(prompt);
  CHECK(start_of(stage, 3).cached_tokens == 20);
  stage.run();
  check_tokens(stage, prompt);
  stage.check_empty();
}

TEST_CASE("a block is shared while its first holder goes on") {
  ReplicaConfig config = small();
  config.max_num_batched_tokens = 8;
  Stage stage(config);
  const Submit first = request(1, 20, 20);
  stage.send(first);
  for (int step = 0; step < 3; ++step) {
    const StepPlanBody plan = stage.plans.front();
    stage.plans.erase(stage.plans.begin());
    stage.send(stage.result_of(plan), kLastShard);
  }
  const Submit second = like(first, 2);
  stage.send(second);
  stage.run();
  CHECK(start_of(stage, 2).cached_tokens == 16);
  check_tokens(stage, first);
  check_tokens(stage, second);
  stage.check_empty();
}

TEST_CASE("what a failed step may have written is not found") {
  Stage stage(small());
  const Submit first = request(1, 12, 4);
  stage.send(first);
  REQUIRE(stage.plans.size() == 1);
  (void)stage.result_of(stage.plans[0]);
  const StepId failed = stage.plans[0].step;
  stage.plans.clear();
  stage.send(StepFailed{stage.config.id, failed, unavailable("gone")}, kLastShard);
  stage.send(Cancel{SequenceId{1}, 0});
  const Submit second = like(first, 2);
  stage.send(second);
  stage.wake(kStepRetryMin);
  CHECK(start_of(stage, 2).cached_tokens == 0);
  stage.run();
  check_tokens(stage, second);
  stage.check_empty();
}

TEST_CASE("a preempted sequence finds what is left of its rows") {
  ReplicaConfig config = small();
  config.blocks = 9;
  std::int32_t rows[2];
  for (const bool caching : {false, true}) {
    config.prefix_caching = caching;
    Stage stage(config);
    std::vector<Submit> submits;
    for (std::uint64_t id = 1; id <= 4; ++id) submits.push_back(request(id, 10, 20));
    for (const Submit& submit : submits) stage.send(submit);
    rows[caching] = rows_run(stage);
    CHECK(stage.replica.report().preemptions > 0);
    for (const Submit& submit : submits) check_tokens(stage, submit);
    stage.check_empty();
    CHECK(start_of(stage, 1).cached_tokens == (caching ? 0 : -1));
  }
  CHECK(rows[1] < rows[0]);
}

TEST_CASE("many that begin alike fit where they would not fit alone") {
  ReplicaConfig config = small();
  config.blocks = 14;
  Stage stage(config);
  const Submit first = request(1, 40, 4);
  stage.send(first);
  stage.run();
  std::vector<Submit> submits;
  for (std::uint64_t id = 2; id <= 5; ++id) {
    submits.push_back(like(first, id));
    submits.back().prompt.back() = static_cast<TokenId>(id);
  }
  for (const Submit& submit : submits) stage.send(submit);
  CHECK(stage.replica.report().running == 1);
  stage.run();
  CHECK(std::ranges::any_of(stage.reports, [](const auto& r) { return r.running >= 3; }));
  for (const Submit& submit : submits) {
    check_tokens(stage, submit);
    CHECK(start_of(stage, submit.sequence.value).cached_tokens == 36);
  }
  stage.check_empty();
}

TEST_CASE("a canary finds nothing and leaves nothing to be found") {
  Stage stage(small());
  const Submit first = request(1, 16, 1);
  stage.send(first);
  stage.run();
  const std::int32_t cached = stage.replica.report().kv_blocks_cached;
  RunCanary order{stage.config.id, 1, first.prompt, 4};
  order.prompt.push_back(3);
  stage.send(order, kSupervisor);
  REQUIRE(!stage.plans.empty());
  CHECK(stage.plans[0].sequences[0].first_position == 0);
  CHECK(stage.plans[0].sequences[0].tokens.size() == 17);
  stage.run();
  CHECK(stage.canaries.size() == 1);
  CHECK(stage.replica.report().kv_blocks_cached == cached);
}

TEST_CASE("what is told to be forgotten is computed again") {
  Stage stage(small());
  const Submit first = request(1, 16, 8);
  stage.send(first);
  stage.send(stage.result_of(stage.plans.front()), kLastShard);
  stage.plans.erase(stage.plans.begin());
  stage.send(ForgetPrefixes{stage.config.id}, kRouter);  // not the Supervisor's
  CHECK(stage.replica.report().kv_blocks_used == 5);
  stage.send(ForgetPrefixes{stage.config.id}, kSupervisor);
  stage.run();
  CHECK(stage.replica.report().kv_blocks_cached == 0);
  const Submit second = like(first, 2);
  stage.send(second);
  CHECK(start_of(stage, 2).cached_tokens == 0);
  stage.run();
  check_tokens(stage, first);
  check_tokens(stage, second);
  CHECK(stage.replica.report().kv_blocks_cached > 0);
}

TEST_CASE("a token that is not known yet is asked for again, with its row alone") {
  Stage stage(small());
  const Submit first = request(1, 9, 12);
  stage.send(first);
  for (int asked = 0; asked < 3; ++asked) {
    const StepPlanBody plan = stage.plans.front();
    stage.plans.clear();
    CHECK(plan.sequences.at(0).tokens.size() == (asked == 0 ? 9 : 1));
    StepResult result = stage.result_of(plan);
    result.sequences.at(0).sampled.reset();
    result.sequences.at(0).waits = true;
    stage.send(std::move(result), kLastShard);
  }
  CHECK(stage.plans.at(0).sequences.at(0).first_position == 8);
  stage.run();
  check_tokens(stage, first);
}

TEST_CASE("a plan brings of a table what is new, and all of it after a failed step") {
  Stage stage(small());
  Submit first = request(1, 9, 12);
  first.sampling.rules = std::make_shared<const TokenRules>();
  stage.send(first);
  const auto sequence = [&]() -> const StepSequence& { return stage.plans.at(0).sequences.at(0); };
  const auto pass = [&] {
    const StepPlanBody plan = stage.plans.front();
    stage.plans.clear();
    stage.send(stage.result_of(plan), kLastShard);
  };
  CHECK(sequence().table_base == 0);
  CHECK(sequence().block_table.size() == 3);
  CHECK(sequence().sampling.rules == first.sampling.rules);
  pass();
  for (int row = 9; row < 12; ++row) {
    CHECK(sequence().table_base == 3);
    CHECK(sequence().block_table.empty());
    CHECK(sequence().sampling.rules == nullptr);
    pass();
  }
  CHECK(sequence().table_base == 3);
  CHECK(sequence().block_table.size() == 1);
  const StepId failed = sequence().id.value == 1 ? stage.plans[0].step : StepId{};
  stage.plans.clear();
  stage.send(StepFailed{stage.config.id, failed, unavailable("no such table")}, kLastShard);
  stage.wake(kStepRetryMin);
  CHECK(sequence().table_base == 0);
  CHECK(sequence().block_table.size() == 4);
  CHECK(sequence().sampling.rules == first.sampling.rules);
  stage.run();
  check_tokens(stage, first);
}

TEST_CASE("tables that do not travel together wait for the next plan") {
  ReplicaConfig config = small();
  config.block_size = 1;
  config.blocks = limits::kStepBlocksMax;
  config.max_model_len = limits::kStepBlocksMax;
  config.max_num_batched_tokens = limits::kStepRowsMax;
  Stage stage(config);
  stage.looks_always = false;  // at a million blocks
  // Nobody computes: every step ends with what a full one could have said.
  const auto pass = [&] {
    const StepPlanBody plan = stage.plans.front();
    stage.plans.clear();
    std::size_t entries = 0;
    StepResult result{config.id, plan.step, {}};
    for (const StepSequence& sequence : plan.sequences) {
      entries += sequence.block_table.size();
      result.sequences.push_back({sequence.id, std::nullopt, {}});
      if (sequence.sample) result.sequences.back().sampled = TokenOutput{1, 0.0f, {}};
    }
    CHECK(entries <= static_cast<std::size_t>(limits::kStepBlocksMax));
    CHECK(!plan.sequences.empty());
    stage.send(result, kLastShard);
    return plan.sequences.size();
  };
  const std::int32_t length = limits::kStepBlocksMax / 2 - 8;
  Submit submit = request(1, static_cast<std::size_t>(length), 1);
  stage.send(submit);
  while (!stage.plans.empty()) pass();
  std::size_t steps = 0, most = 0;
  for (std::uint64_t id = 2; id <= 6; ++id) stage.send(like(submit, id));
  for (; !stage.plans.empty(); ++steps) most = std::max(most, pass());
  CHECK(most == 2);
  CHECK(steps >= 3);
  CHECK(stage.replica.violation() == "");
  stage.check_empty();
}
