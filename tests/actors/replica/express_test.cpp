// Steps that pass those in flight: whoever goes ahead does not wait for their end.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "runtime/limits.h"
#include "tests/actors/replica/stage.h"
#include "tests/promises.h"

using namespace troupe;
using namespace troupe::testing;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t kFlood = 11, kCalm = 22, kReader = 33;  // owners

struct Flooded : Stage {
  explicit Flooded(ReplicaConfig c = config(), std::size_t prompt = 5) : Stage(c) {
    for (int i = 0; i < 12; ++i) ask(kFlood, prompt, 40);
  }
  static ReplicaConfig config() {
    ReplicaConfig config = small();
    config.max_num_seqs = 3;
    config.blocks = 64;
    return config;
  }
  /// With room for all, and for longer prompts.
  static ReplicaConfig roomy(std::int32_t rows_a_step, std::int32_t context) {
    ReplicaConfig config = small();
    config.max_num_batched_tokens = rows_a_step;
    config.max_model_len = config.blocks = context;
    return config;
  }
  std::uint64_t ask(std::uint64_t owner, std::size_t prompt, std::uint32_t max_tokens) {
    Submit submit = request(asked.size() + 1, prompt, max_tokens);
    submit.prompt.front() = static_cast<TokenId>(submit.sequence.value / kVocab % kVocab);
    submit.owner = owner;
    asked.push_back(submit);
    send(submit);
    return submit.sequence.value;
  }
  /// A step comes back, after so long.
  void end(std::size_t index, Duration took) {
    const StepPlanBody plan = plans.at(index);
    plans.erase(plans.begin() + static_cast<std::ptrdiff_t>(index));
    now += took;
    send(result_of(plan), kLastShard);
  }
  void check_all() {
    run();
    check_empty();
    for (const Submit& submit : asked)
      CHECK(tokens_of(submit.sequence.value) == expected_of(submit).output);
  }
  std::vector<Submit> asked;
};

std::size_t rows_of(const StepPlanBody& plan) {
  std::size_t rows = 0;
  for (const StepSequence& s : plan.sequences) rows += s.tokens.size();
  return rows;
}

}  // namespace

TEST_CASE("a newcomer that goes ahead passes the step in flight, though all places are taken") {
  Flooded stage;
  for (int i = 0; i < 4; ++i) stage.end(0, 10ms);
  REQUIRE(stage.plans.size() == 1);
  REQUIRE(stage.replica.report().running == 3);
  const std::uint64_t mine = stage.ask(kCalm, 6, 4);
  REQUIRE(stage.plans.size() == 2);
  const StepPlanBody express = stage.plans[1];
  CHECK(!stage.plans[0].express);
  CHECK(express.express);
  REQUIRE(express.sequences.size() == 1);
  CHECK(express.sequences[0].id.value == mine);
  CHECK(rows_of(express) == 6);
  stage.end(1, 5ms);
  CHECK(stage.tokens_of(mine).size() == 1);
  // It goes on beside those of the flood, of which one has given its place.
  stage.end(0, 10ms);
  REQUIRE(stage.plans.size() == 1);
  CHECK(!stage.plans[0].express);
  CHECK(stage.plans[0].sequences.size() == 3);
  CHECK(std::ranges::any_of(stage.plans[0].sequences,
                            [&](const StepSequence& s) { return s.id.value == mine; }));
  CHECK(stage.replica.report().running == 3);
  stage.check_all();
}

TEST_CASE("nobody passes those of its own owner, nor of one that asks for as much") {
  Flooded stage;
  stage.end(0, 10ms);
  stage.ask(kFlood, 6, 4);
  CHECK(stage.plans.size() == 1);
  ReplicaConfig config = Flooded::config();
  config.max_num_seqs = 8;
  Flooded other(config);
  for (int i = 0; i < 10; ++i) {
    other.ask(kCalm, 5, 40);
    other.end(0, 10ms);
    while (other.plans.size() > 1) other.end(1, 1ms);
  }
  REQUIRE(other.plans.size() == 1);
  other.ask(kCalm, 5, 40);
  CHECK(other.plans.size() == 1);
  other.check_all();
}

TEST_CASE("steps that pass others leave these a sixth of the time, however long one of them is") {
  for (const Duration each : {6ms, 240ms}) {
    CAPTURE(each.count());
    ReplicaConfig config = Flooded::config();
    config.max_num_seqs = 8;
    config.blocks = 256;
    Flooded stage(config);
    const auto pass_all = [&] {
      Duration held{};
      for (int i = 0; i < 200; ++i) {
        stage.ask(kCalm, 6, 1);
        if (stage.plans.size() == 1) break;
        stage.end(1, each);
        held += each;
      }
      return held;
    };
    const Duration at_first = pass_all();
    CHECK(at_first >= limits::kStepTarget);
    CHECK(at_first < limits::kStepTarget + each);
    Duration later{};
    for (int i = 0; i < 48; ++i) {
      stage.end(0, 10ms);
      later += pass_all();
    }
    CHECK(later > 48 * 50ms - each);
    CHECK(later < 48 * 50ms + each);
    stage.check_all();
  }
}

TEST_CASE("after a step that took long no other is held up for as long") {
  Flooded stage;
  stage.end(0, 10s);
  Duration held{};
  for (int i = 0; i < 200; ++i) {
    stage.ask(kCalm, 6, 1);
    if (stage.plans.size() == 1) break;
    stage.end(1, 60ms);
    held += 60ms;
  }
  CHECK(held > 0ms);
  CHECK(held <= limits::kStepTarget + 60ms);
  stage.check_all();
}

TEST_CASE("a stream that nobody goes ahead of waits no longer than for steps that it is in") {
  for (const bool streams : {false, true}) {
    CAPTURE(streams);
    Flooded stage(Flooded::roomy(512, 512), 40);  // whose prompts tell what rows take
    if (streams) stage.ask(kReader, 5, 60);
    // Two milliseconds a step, and a tenth of one a row.
    const auto time_of = [&](std::size_t index) {
      return 2ms + std::chrono::microseconds(100 * rows_of(stage.plans[index]));
    };
    for (int i = 0; i < 20; ++i) stage.end(0, time_of(0));
    const std::uint64_t mine = stage.ask(kCalm, 200, 2);
    Duration held{};
    while (stage.plans.size() == 2) {
      CHECK(stage.plans[1].express);
      held += time_of(1);
      stage.end(1, time_of(1));
    }
    CHECK(held > 0ms);
    if (streams)
      CHECK(held <= 5ms);  // the stream's own steps take 3
    else
      CHECK(held > 12ms);
    while (stage.tokens_of(mine).empty()) stage.end(stage.plans.size() - 1, 3ms);
    stage.check_all();
  }
}

TEST_CASE("what express steps take says nothing of steps with many rows") {
  Flooded stage(Flooded::roomy(256, 1024));
  for (int i = 0; i < 20; ++i) stage.end(0, 3ms);
  for (int i = 0; i < 10; ++i) {
    stage.ask(kCalm, 10, 1);
    if (stage.plans.size() == 2) stage.end(1, 500ms);
    stage.end(0, 3ms);
  }
  stage.ask(kFlood, 900, 1);
  for (int i = 0; i < 40; ++i) stage.end(0, 3ms);
  std::size_t most = 0;
  for (int i = 0; i < 10; ++i) {
    stage.ask(kFlood, 900, 1);
    most = std::max(most, rows_of(stage.plans[0]));
    stage.end(0, 3ms);
  }
  CHECK(most >= 64);
  stage.check_all();
}

TEST_CASE("with all stages busy, one step passes") {
  ReplicaConfig config = Flooded::config();
  config.stages = 2;
  config.max_num_seqs = 6;
  Flooded stage(config);
  for (int i = 0; i < 6; ++i) stage.end(0, 10ms);
  REQUIRE(stage.plans.size() == 2);
  const std::uint64_t mine = stage.ask(kCalm, 6, 4);
  REQUIRE(stage.plans.size() == 3);
  CHECK(stage.plans[2].express);
  CHECK(stage.plans[2].sequences[0].id.value == mine);
  stage.ask(kCalm, 6, 4);
  CHECK(stage.plans.size() == 3);
  stage.end(0, 10ms);
  CHECK(stage.replica.report().running <= 7);
  stage.end(0, 10ms);
  stage.end(0, 10ms);
  CHECK(stage.tokens_of(mine).size() == 1);
  stage.check_all();
}

TEST_CASE("nobody passes a step of a sequence that may be what makes steps fail") {
  ReplicaConfig config = Flooded::config();
  config.max_num_seqs = 1;
  Stage stage(config);
  Submit odd = request(1, 6, 8);
  odd.owner = kFlood;
  stage.send(odd);
  for (std::uint64_t id = 2; id < 8; ++id) {
    Submit other = request(id, 6, 8);
    other.owner = kFlood;
    stage.send(other);
  }
  for (std::uint32_t i = 0; i < kStepFailuresSuspect; ++i) {
    REQUIRE(stage.plans.size() == 1);
    const StepId step = stage.plans[0].step;
    stage.plans.clear();
    stage.send(StepFailed{0, step, unavailable("a link broke")}, kLastShard);
    stage.wake(kStepRetryMax);
  }
  REQUIRE(stage.plans.size() == 1);
  REQUIRE(stage.plans[0].sequences[0].id.value == 1);
  Submit calm = request(9, 6, 8);
  calm.owner = kCalm;
  stage.send(calm);
  CHECK(stage.plans.size() == 1);
}

TEST_CASE("who leaves while a step of it passes others leaves nothing behind") {
  for (const bool head_goes : {false, true}) {
    Flooded stage;
    stage.end(0, 10ms);
    const std::uint64_t mine = stage.ask(kCalm, 6, 4);
    REQUIRE(stage.plans.size() == 2);
    if (head_goes)
      stage.head_changed(std::nullopt);
    else
      stage.send(Cancel{SequenceId{mine}, 0});
    stage.end(1, 5ms);
    CHECK(stage.tokens_of(mine).empty());
    stage.end(0, 5ms);
    if (!head_goes) {
      stage.asked.pop_back();
      stage.check_all();
    } else {
      stage.check_empty();
    }
  }
}

TEST_CASE("thousands that come while a step is in flight are taken at once") {
  Flooded stage;
  const auto begin = std::chrono::steady_clock::now();
  Replica::Effects effects;
  for (std::uint64_t i = 0; i < 4000; ++i) {
    Submit submit = request(1000 + i, 40, 4);
    submit.prompt = request(1, 40, 4).prompt;
    submit.owner = i % 4 == 0 ? 1000 + i % 1000 : kFlood;
    turn(stage.replica, {kRouter, kSelf, message_of(submit)}, stage.now, effects);
  }
  promised("thousands are taken", std::chrono::steady_clock::now() - begin, 5s);
}

TEST_CASE("a long prompt that goes ahead is computed in several steps, one at a time") {
  ReplicaConfig config = Flooded::config();
  config.max_num_batched_tokens = 2048;
  config.max_model_len = 4096;
  config.blocks = 1024;
  Flooded stage(config);
  for (int i = 0; i < 6; ++i) stage.end(0, 10ms);
  const std::uint64_t mine = stage.ask(kCalm, 1500, 2);
  int chunks = 0;
  for (; stage.plans.size() == 2; ++chunks) {
    CHECK(rows_of(stage.plans[1]) <= static_cast<std::size_t>(limits::kExpressRowsMax));
    stage.end(1, 1ms);
  }
  CHECK(chunks >= 3);
  CHECK(stage.tokens_of(mine).size() == 1);
  stage.check_all();
}

TEST_CASE("a step that passes others may fail like any, and they go on") {
  Flooded stage;
  stage.end(0, 10ms);
  const std::uint64_t mine = stage.ask(kCalm, 6, 4);
  REQUIRE(stage.plans.size() == 2);
  const StepId step = stage.plans[1].step;
  stage.plans.erase(stage.plans.begin() + 1);
  stage.send(StepFailed{0, step, unavailable("a link broke")}, kLastShard);
  CHECK(stage.aborted == std::vector<StepId>{step});
  stage.end(0, 10ms);
  stage.wake(kStepRetryMax);
  for (int i = 0; i < 8 && stage.tokens_of(mine).empty(); ++i) stage.end(0, 10ms);
  CHECK(!stage.tokens_of(mine).empty());
  stage.check_all();
}

TEST_CASE("whatever passes whatever, all tokens are what they must be") {
  std::set<bool> kinds;
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto pick = [&](std::size_t below) { return static_cast<std::size_t>(random()) % below; };
    ReplicaConfig config = Flooded::config();
    config.stages = 1 + static_cast<std::int32_t>(seed % 3);
    config.blocks = seed % 2 == 0 ? 64 : 24;
    config.max_num_seqs = 2 + static_cast<std::int32_t>(pick(6));
    config.prefix_caching = seed % 4 < 2;
    Flooded stage(config);
    std::set<std::uint64_t> left;
    for (int turn = 0; turn < 200; ++turn) {
      const std::uint64_t owner = pick(3) == 0 ? kFlood : kCalm + pick(3);
      if (pick(4) == 0 && stage.replica.report().waiting < 20)
        stage.ask(owner, 1 + pick(20), static_cast<std::uint32_t>(1 + pick(6)));
      if (pick(20) == 0 && !stage.asked.empty()) {
        const std::uint64_t id = stage.asked[pick(stage.asked.size())].sequence.value;
        if (!left.contains(id)) stage.send(Cancel{SequenceId{id}, 0});
        left.insert(id);
      }
      if (pick(20) == 0) stage.send(ForgetPrefixes{0}, kSupervisor);
      if (stage.plans.empty()) continue;
      for (const StepPlanBody& plan : stage.plans) kinds.insert(plan.express);
      const std::size_t index = pick(stage.plans.size());
      if (pick(15) == 0) {
        const StepId step = stage.plans[index].step;
        stage.plans.erase(stage.plans.begin() + static_cast<std::ptrdiff_t>(index));
        stage.send(StepFailed{0, step, unavailable("a link broke")}, kLastShard);
        stage.wake(kStepRetryMax);
      } else {
        stage.end(index, std::chrono::milliseconds(1 + pick(20)));
      }
    }
    while (stage.replica.report().running + stage.replica.report().waiting > 0) {
      if (stage.plans.empty()) stage.wake(kStepRetryMax);
      stage.run();
    }
    std::erase_if(stage.asked,
                  [&](const Submit& submit) { return left.contains(submit.sequence.value); });
    stage.check_all();
  }
  CHECK(kinds.size() == 2);
}
