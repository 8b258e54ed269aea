// The Supervisor's canary beside the sequences of a replica.
#include <doctest/doctest.h>

#include "runtime/limits.h"
#include "tests/actors/replica/stage.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

RunCanary canary(std::uint64_t run, std::size_t prompt = 9, std::uint32_t generate = 3) {
  RunCanary order;
  order.run = run;
  for (std::size_t i = 0; i < prompt; ++i)
    order.prompt.push_back(static_cast<TokenId>((i * 7 + 3) % kVocab));
  order.generate = generate;
  return order;
}

std::vector<TokenId> ids(const std::vector<TokenOutput>& outputs) {
  std::vector<TokenId> ids;
  for (const TokenOutput& output : outputs) ids.push_back(output.token);
  return ids;
}

std::vector<TokenId> expected_tokens(const RunCanary& order) {
  SamplingParams greedy;
  greedy.temperature = 0;
  return ids(testing::expected_of(order.prompt, greedy, order.generate, false, -1).output);
}

CanaryResult result_alone(const RunCanary& order, ReplicaConfig config = small()) {
  Stage stage(config);
  stage.send(order, kSupervisor);
  stage.run();
  REQUIRE(stage.canaries.size() == 1);
  CHECK(stage.told.empty());
  stage.check_empty();
  return stage.canaries[0];
}

}  // namespace

TEST_CASE("a canary gives its tokens and digests, whatever the chunks, and the Router no news") {
  const CanaryResult whole = result_alone(canary(7));
  CHECK(whole.run == 7);
  CHECK(!whole.error);
  CHECK(whole.tokens == expected_tokens(canary(7)));
  REQUIRE(whole.digests.size() == 3);  // of the prompt, and of two tokens that were computed on
  for (const std::int32_t chunk : {1, 2, 7}) {
    ReplicaConfig config = small();
    config.max_num_batched_tokens = chunk;
    CHECK(result_alone(canary(7), config).digests == whole.digests);
  }
}

TEST_CASE("a canary runs in the steps of others and is not counted among them") {
  Stage stage(small());
  for (std::uint64_t id = 1; id <= 3; ++id) stage.send(request(id, 5, 6));
  stage.send(canary(1), kSupervisor);
  stage.run();
  REQUIRE(stage.canaries.size() == 1);
  CHECK(stage.canaries[0].tokens == expected_tokens(canary(1)));
  CHECK(stage.canaries[0].digests == result_alone(canary(1)).digests);
  for (std::uint64_t id = 1; id <= 3; ++id)
    CHECK(stage.tokens_of(id) == expected_of(request(id, 5, 6)).output);
  for (const ReplicaReport& report : stage.reports) CHECK(report.running <= 3);
  stage.check_empty();
}

TEST_CASE("one canary at a time; those that cannot be are refused, a stranger's is ignored") {
  Stage stage(small());
  stage.send(canary(1));  // the Router's
  CHECK(stage.plans.empty());
  stage.send(canary(1), kSupervisor);
  stage.send(canary(1), kSupervisor);  // a duplicate
  CHECK(stage.canaries.empty());
  stage.send(canary(2), kSupervisor);
  REQUIRE(stage.canaries.size() == 1);
  CHECK(stage.canaries[0].run == 2);
  CHECK(stage.canaries[0].error.has_value());
  stage.send(canary(3, 0), kSupervisor);
  stage.run();
  REQUIRE(stage.canaries.size() == 3);
  CHECK(stage.canaries[1].run == 3);
  CHECK(stage.canaries[2].run == 1);
  CHECK(!stage.canaries[2].error);
  stage.send(canary(4, 200, 3), kSupervisor);
  REQUIRE(stage.canaries.size() == 4);
  CHECK(stage.canaries[3].error->code == ErrorCode::kInvalidArgument);
  CHECK(stage.canaries[3].no_room);
}

TEST_CASE("a failed step ends a canary with its reason, and only the others run again") {
  Stage stage(small());
  stage.send(request(1, 5, 6));
  stage.send(canary(1), kSupervisor);
  stage.run();
  stage.send(request(2, 5, 6));
  stage.plans.clear();
  stage.send(canary(2), kSupervisor);
  stage.peer_down(kLastShard.node);
  stage.wake(kStepRetryMin);
  stage.run();
  // Its step failed, or it had not begun and runs after the pause.
  REQUIRE(stage.canaries.size() == 2);
  CHECK(stage.tokens_of(2) == expected_of(request(2, 5, 6)).output);

  Stage alone(small());
  alone.send(canary(3), kSupervisor);
  alone.peer_down(kLastShard.node);
  REQUIRE(alone.canaries.size() == 1);
  CHECK(alone.canaries[0].error->code == ErrorCode::kUnavailable);
  CHECK_FALSE(alone.canaries[0].no_room);
  CHECK(alone.canaries[0].digests.empty());
  alone.check_empty();
}

TEST_CASE("a canary that hangs is given up at its deadline; its blocks when its step ends") {
  Stage stage(small());
  stage.send(canary(1), kSupervisor);
  REQUIRE(stage.plans.size() == 1);
  const StepId step = stage.plans[0].step;
  while (stage.now < TimePoint{} + limits::kCanaryDeadline - limits::kProgressEvery) {
    stage.wake(limits::kProgressEvery);
    stage.send(StepProgress{0, step}, kFirstShard);
  }
  CHECK(stage.wake_at == TimePoint{} + limits::kCanaryDeadline);
  CHECK(stage.canaries.empty());
  stage.wake(limits::kProgressEvery);
  REQUIRE(stage.canaries.size() == 1);
  CHECK(stage.canaries[0].error->code == ErrorCode::kDeadlineExceeded);
  CHECK(stage.replica.report().kv_blocks_used > 0);
  stage.send(canary(2), kSupervisor);
  REQUIRE(stage.canaries.size() == 2);
  CHECK(stage.canaries[1].error.has_value());
  stage.run();
  stage.check_empty();
  stage.send(canary(3), kSupervisor);
  stage.run();
  REQUIRE(stage.canaries.size() == 3);
  CHECK(!stage.canaries[2].error);
}

TEST_CASE("a canary preempts nobody: it waits for room, and gives its own up") {
  ReplicaConfig config = small();
  config.blocks = 8;
  Stage stage(config);
  stage.send(request(1, 9, 23));  // 8 blocks at its end
  stage.send(canary(1), kSupervisor);
  stage.run();
  CHECK(stage.tokens_of(1) == expected_of(request(1, 9, 23)).output);
  CHECK(stage.replica.report().preemptions == 0);
  REQUIRE(stage.canaries.size() == 1);
  CHECK(stage.canaries[0].digests == result_alone(canary(1)).digests);

  // It began first and is set aside when the others need its blocks.
  Stage crowded(config);
  crowded.send(canary(1, 4, 12), kSupervisor);
  crowded.send(request(1, 4, 10));
  crowded.send(request(2, 4, 10));
  crowded.run();
  CHECK(crowded.replica.report().preemptions == 0);
  CHECK(crowded.tokens_of(1) == expected_of(request(1, 4, 10)).output);
  CHECK(crowded.tokens_of(2) == expected_of(request(2, 4, 10)).output);
  REQUIRE(crowded.canaries.size() == 1);
  CHECK(crowded.canaries[0].digests == result_alone(canary(1, 4, 12)).digests);
  crowded.check_empty();
}

TEST_CASE("a result without the canary's digests is the canary's trouble alone") {
  Stage stage(small());
  stage.send(request(1, 5, 6));
  stage.send(canary(1), kSupervisor);
  while (!stage.plans.empty()) {
    const StepPlanBody plan = stage.plans.front();
    stage.plans.erase(stage.plans.begin());
    StepResult result = stage.result_of(plan);
    result.digests.clear();
    stage.send(result, kLastShard);
  }
  REQUIRE(stage.canaries.size() == 1);
  CHECK(stage.canaries[0].error->code == ErrorCode::kInternal);
  CHECK(stage.tokens_of(1) == expected_of(request(1, 5, 6)).output);
  stage.check_empty();
}
