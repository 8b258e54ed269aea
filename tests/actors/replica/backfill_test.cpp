// A prompt that does not fit beside those that run holds nobody up who has nothing yet, and comes
// to its turn.
#include <doctest/doctest.h>

#include <map>

#include "tests/actors/replica/stage.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

constexpr std::uint64_t kGiants = 11, kOther = 22, kStream = 33, kThird = 44;  // owners

Submit asked_by(std::uint64_t owner, std::uint64_t id, std::size_t prompt,
                std::uint32_t max_tokens) {
  Submit submit = request(id, prompt, max_tokens);
  submit.owner = owner;
  return submit;
}

/// Steps until the first token of that sequence; 1000: it did not come within these.
int steps_to(Stage& stage, std::uint64_t id) {
  for (int step = 0; step < 1000; ++step) {
    if (!stage.tokens_of(id).empty()) return step;
    if (stage.plans.empty()) break;
    stage.run_one();
  }
  return 1000;
}

bool ended(const Stage& stage, std::uint64_t id) {
  return std::ranges::any_of(stage.told, [&](const SequenceEvent& event) {
    return event.sequence.value == id && event.finish != FinishReason::kNone;
  });
}

}  // namespace

TEST_CASE("who has nothing yet goes ahead of a prompt that does not fit now") {
  ReplicaConfig config = small();
  SUBCASE("with places for all") {}
  SUBCASE("with one place for a newcomer") { config.max_num_seqs = 2; }
  Stage stage(config);
  stage.send(asked_by(kStream, 1, 16, 30));
  stage.run_one();
  stage.send(asked_by(kGiants, 2, 60, 2));
  stage.send(asked_by(kGiants, 3, 3, 2));  // no more than its owner's first
  stage.send(asked_by(kOther, 4, 3, 4));
  CHECK(steps_to(stage, 4) <= 2);
  CHECK(stage.tokens_of(3).empty());
  CHECK(stage.tokens_of(1).size() < 10);
  stage.run();
  CHECK(stage.tokens_of(2) == expected_of(asked_by(kGiants, 2, 60, 2)).output);
  stage.check_empty();
}

TEST_CASE("beside a long prompt it has its half of a step, past one that does not fit") {
  ReplicaConfig config = small();
  config.blocks = 64;
  config.max_model_len = 256;
  config.max_num_batched_tokens = 16;
  Stage stage(config);
  stage.send(asked_by(kStream, 1, 200, 4));
  stage.send(asked_by(kGiants, 2, 200, 2));
  stage.send(asked_by(kOther, 3, 6, 4));
  CHECK(steps_to(stage, 3) <= 3);
  stage.run();
  stage.check_empty();
}

TEST_CASE("a flood gives way to it, although one that cannot come waits before it") {
  Stage stage(small());
  for (std::uint64_t id = 1; id <= 12; ++id) stage.send(asked_by(kStream, id, 5, 40));
  stage.run_one();
  REQUIRE(stage.replica.report().running == 8);
  stage.send(asked_by(kGiants, 20, 60, 2));
  stage.send(asked_by(kOther, 21, 5, 2));
  CHECK(steps_to(stage, 21) <= 2);
  stage.run();
  stage.check_empty();
}

TEST_CASE("those who come again and again go ahead of it so many times, and no more") {
  ReplicaConfig config = small();
  config.prefix_caching = false;
  Stage stage(config);
  std::uint64_t next = 1;
  std::map<std::uint64_t, std::uint64_t> asks;  // an owner's only one
  const auto ask = [&](std::uint64_t owner) {
    asks[owner] = next;
    stage.send(asked_by(owner, next++, 5, owner == kOther ? 5 : owner == kThird ? 7 : 25));
  };
  constexpr std::uint64_t kGiant = 1'000'000;
  for (const std::uint64_t owner : {kOther, kThird, kStream}) ask(owner);
  stage.run_one();
  stage.send(asked_by(kGiants, kGiant, 60, 2));
  int steps = 0;
  for (; stage.tokens_of(kGiant).empty() && steps < 1000; ++steps) {
    stage.run_one();
    for (const auto& [owner, id] : asks)
      if (ended(stage, id)) ask(owner);
  }
  CHECK(steps < 400);
  CHECK(next > 60);
  stage.run();
  stage.check_empty();
}
