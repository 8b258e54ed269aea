#include "actors/replica/fair_turns.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/actors/replica/stage.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

constexpr std::uint64_t kA = 11, kB = 22;  // owners

/// With all its blocks; four positions a block.
PlanSequence runs(std::uint64_t key, std::uint64_t owner, std::int32_t length = 4,
                  float weight = 1) {
  return {key, length - 1, length, (length + 3) / 4, false, owner, weight};
}
PlanSequence waits(std::uint64_t key, std::uint64_t owner, std::int32_t length = 4,
                   float weight = 1) {
  return {key, 0, length, 0, false, owner, weight};
}
using Keys = std::vector<std::uint64_t>;
Keys keys_of(const std::vector<PlanSequence>& sequences) {
  Keys keys;
  for (const PlanSequence& sequence : sequences) keys.push_back(sequence.key);
  return keys;
}

struct TurnCase {
  std::string name;
  std::vector<PlanSequence> running, waiting;  // by key
  std::int32_t places, blocks, blocks_free;
  Keys run_order, wait_order, leave;
};
const TurnCase kTurnCases[] = {
    {"one owner: first come, first served, and nobody leaves",
     {runs(1, kA), runs(2, kA)},
     {waits(3, kA), waits(4, kA)},
     2,
     100,
     0,
     {1, 2},
     {3, 4},
     {}},
    {"a newcomer goes before the rest of a flood, and has a place",
     {runs(1, kA), runs(2, kA), runs(3, kA)},
     {waits(4, kA), waits(5, kA), waits(6, kB)},
     3,
     100,
     50,
     {1, 2, 3},
     {6, 4, 5},
     {3}},
    {"its second gets none: with it, it would have as much as the flood",
     {runs(1, kA), runs(2, kA), runs(6, kB)},
     {waits(4, kA), waits(7, kB)},
     3,
     100,
     50,
     {6, 1, 2},
     {7, 4},
     {}},
    {"equals alternate, by arrival",
     {},
     {waits(1, kA), waits(2, kA), waits(3, kB), waits(4, kB)},
     8,
     100,
     50,
     {},
     {1, 3, 2, 4},
     {}},
    {"a weight of two is two turns for one",
     {},
     {waits(1, kA), waits(2, kA), waits(3, kB, 4, 2), waits(4, kB, 4, 2), waits(5, kB, 4, 2)},
     8,
     100,
     50,
     {},
     {1, 3, 4, 2, 5},
     {}},
    {"a weight of two has two of three places",
     {runs(1, kA), runs(2, kA), runs(3, kB, 4, 2)},
     {waits(4, kB, 4, 2)},
     3,
     100,
     50,
     {3, 1, 2},
     {4},
     {2}},
    {"a long sequence counts by its blocks",
     {},
     {waits(1, kA, 160), waits(2, kA), waits(3, kB), waits(4, kB), waits(5, kB)},
     8,
     100,
     50,
     {},
     {1, 3, 4, 5, 2},
     {}},
    {"blocks are a reason to leave, too",
     {runs(1, kA, 40), runs(2, kA, 40), runs(3, kA, 40)},
     {waits(4, kB, 16)},
     8,
     31,
     1,
     {1, 2, 3},
     {4},
     {3}},
    {"nobody leaves if it would not be enough",
     {runs(1, kA, 40), runs(2, kA, 40), runs(3, kA, 40)},
     {waits(4, kB, 80)},
     8,
     31,
     1,
     {1, 2, 3},
     {4},
     {}},
    {"nobody leaves where there is room",
     {runs(1, kA), runs(2, kA), runs(3, kA)},
     {waits(4, kB)},
     4,
     100,
     1,
     {1, 2, 3},
     {4},
     {}},
    {"who is in a step stays, another goes",
     {runs(1, kA), runs(2, kA),
      [] {
        auto s = runs(3, kA);
        s.busy = true;
        return s;
      }()},
     {waits(4, kB)},
     3,
     100,
     50,
     {1, 2, 3},
     {4},
     {2}},
    {"an owner's first stays whatever others weigh",
     {runs(1, kA)},
     {waits(2, kB, 4, 100)},
     1,
     100,
     50,
     {1},
     {2},
     {}},
};

PlanQuestions freed_of(const std::vector<PlanSequence>& running) {
  PlanQuestions ask;
  ask.cached = [](std::uint64_t) { return KvPrefix{}; };
  ask.freed = [&running](std::span<const std::uint64_t> keys) {
    std::int32_t freed = 0;
    for (const PlanSequence& sequence : running)
      if (std::ranges::find(keys, sequence.key) != keys.end()) freed += sequence.blocks;
    return freed;
  };
  return ask;
}

}  // namespace

TEST_CASE("turns: who goes first, and who gives way") {
  for (const TurnCase& c : kTurnCases) {
    CAPTURE(c.name);
    auto running = c.running, waiting = c.waiting;
    take_turns(running, waiting, c.places, c.blocks, 4);
    CHECK(keys_of(running) == c.run_order);
    CHECK(keys_of(waiting) == c.wait_order);
    PlanLimits limits;
    limits.sequences_running = c.places;
    limits.block_size = 4;
    limits.blocks_free = c.blocks_free;
    CHECK(who_gives_way(running, waiting, limits, freed_of(running)) == c.leave);
  }
}

TEST_CASE("an owner's queue: replays, then by priority, then by arrival") {
  const Keys in_order = {queue_key(true, kPriorityMax, 1),  queue_key(false, -kPriorityMax, 9),
                         queue_key(false, -1, 8),           queue_key(false, 0, 2),
                         queue_key(false, 0, 7),            queue_key(false, 1, 1),
                         queue_key(false, kPriorityMax, 0)};
  CHECK(std::ranges::is_sorted(in_order));
  CHECK(queue_key(true, -kPriorityMax, 0) > 0);
}

TEST_CASE("prompts of other owners have half of a chunk, before a prompt that is not long") {
  const auto prompt = [](std::uint64_t key, std::uint64_t owner) {
    return PlanSequence{key, 4, 24, 6, false, owner};
  };
  const PlanLimits limits{8, 8, 64, 4, 100, 16};
  const auto planned = [&](std::vector<PlanSequence> running) {
    return plan_step(running, {}, limits, freed_of(running)).rows;
  };
  CHECK(planned({prompt(1, kA), prompt(2, kA)}) == std::vector<PlannedRows>{{1, 16, 0}});
  CHECK(planned({prompt(1, kA), prompt(2, kB)}) ==
        std::vector<PlannedRows>{{1, 8, 0}, {2, 8, 0}});
}

TEST_CASE("over prompts of a flood the one of an owner that asks for less goes ahead") {
  const auto prompt = [](std::uint64_t key, std::uint64_t owner, std::int32_t length) {
    return PlanSequence{key, 4, length, 6, false, owner};
  };
  const PlanLimits limits{8, 8, 64, 4, 100, 16};
  const auto planned = [&](std::vector<PlanSequence> running, std::vector<PlanSequence> waiting) {
    take_turns(running, waiting, 8, 100, 4);
    const PlanQuestions ask{[](std::uint64_t) { return KvPrefix{}; }, freed_of(running).freed};
    return plan_step(running, waiting, limits, ask).rows;
  };
  const std::vector<PlanSequence> flood{prompt(1, kA, 24), prompt(2, kA, 24), prompt(3, kA, 24)};
  auto both = flood;
  both.push_back(prompt(9, kB, 24));
  // However short it is, the others have no more than an eighth.
  CHECK(planned(both, {}) == std::vector<PlannedRows>{{9, 14, 0}, {1, 2, 0}});
  both.back().length = 8;
  CHECK(planned(both, {}) == std::vector<PlannedRows>{{9, 4, 0}, {1, 2, 0}});
  // While it waits to join, too.
  CHECK(planned(flood, {{9, 0, 24, 0, false, kB}}) ==
        std::vector<PlannedRows>{{1, 1, 0}, {2, 1, 0}, {9, 14, 4}});
  // Of two floods nobody does, also where one asks for a little more.
  both = flood;
  for (std::uint64_t key = 9; key < 13; ++key) both.push_back(prompt(key, kB, 24));
  CHECK(planned(both, {}).front() == PlannedRows{1, 8, 0});
  // One that is in another step counts in this one.
  both = flood;
  both.push_back(prompt(9, kB, 24));
  both.back().busy = true;
  CHECK(planned(both, {}) == std::vector<PlannedRows>{{1, 2, 0}});
  // An owner with that weight is no flood.
  both = flood;
  for (PlanSequence& heavy : both) heavy.weight = 4;
  both.push_back(prompt(9, kB, 24));
  CHECK(planned(both, {}).front() == PlannedRows{9, 8, 0});
}

namespace {

/// How many steps each request of the second owner waits for its first token, beside `flood`
/// requests of the first at any time; tokens of both are what they must be.
std::vector<int> steps_to_first_token(std::uint32_t seed, int flood, std::uint64_t second_owner,
                                      ReplicaConfig config) {
  std::mt19937 random(seed);
  const auto pick = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  Stage stage(config);
  std::vector<Submit> asked;
  std::vector<int> waits;
  std::uint64_t next = 1, mine = 0;
  int since = 0, next_at = 0, flooding = 0;
  const auto ask = [&](std::uint64_t owner) {
    Submit submit = request(next++, static_cast<std::size_t>(pick(3, 9)),
                            static_cast<std::uint32_t>(pick(3, 9)));
    submit.owner = owner;
    stage.send(submit);
    asked.push_back(submit);
    return submit.sequence.value;
  };
  for (int step = 0; step < 250; ++step) {
    for (; flooding < flood; ++flooding) ask(kA);
    if (mine == 0 && step >= next_at) {
      mine = ask(second_owner);
      since = step;
    }
    if (stage.plans.empty()) continue;
    const std::size_t before = stage.told.size();
    stage.run_one();
    for (std::size_t i = before; i < stage.told.size(); ++i) {
      const SequenceEvent& event = stage.told[i];
      REQUIRE(!event.error);
      const bool own = event.sequence.value == mine;
      if (own && event.index == 0 && !event.tokens.empty()) waits.push_back(step - since);
      if (event.finish == FinishReason::kNone) continue;
      if (own) {
        mine = 0;
        next_at = step + pick(0, 5);
      } else {
        --flooding;
      }
    }
  }
  stage.run();
  stage.check_empty();
  for (const Submit& submit : asked)
    CHECK(stage.tokens_of(submit.sequence.value) == expected_of(submit).output);
  return waits;
}

}  // namespace

TEST_CASE("beside a flood a request waits no longer than a step or two, whatever is scarce") {
  for (std::uint32_t seed = 0; seed < 4; ++seed) {
    CAPTURE(seed);
    ReplicaConfig config = small();
    if (seed % 2 == 0) config.max_num_seqs = 3;  // places
    if (seed % 2 == 1) config.blocks = 12;       // blocks
    config.prefix_caching = seed % 3 == 0;
    const auto beside = steps_to_first_token(seed, 30, kB, config);
    REQUIRE(beside.size() > 10);
    CHECK(std::ranges::max(beside) <= 2);
    // Of the same owner, it waits for its turn.
    const auto among = steps_to_first_token(seed, 30, kA, config);
    CHECK(std::ranges::max(among) > 20);
  }
}

TEST_CASE("among as many floods as places a newcomer has the next place that comes free") {
  ReplicaConfig config = small();
  config.max_num_seqs = 2;
  Stage stage(config);
  constexpr std::uint64_t kC = 33;
  std::map<std::uint64_t, std::uint64_t> owner_of;
  std::map<std::uint64_t, int> ended;  // by owner
  std::uint64_t next = 1;
  const auto ask = [&](std::uint64_t owner) {
    Submit submit = request(next, 3, 6);
    submit.owner = owner;
    owner_of[next++] = owner;
    stage.send(submit);
  };
  for (int i = 0; i < 60; ++i) ask(i % 2 == 0 ? kA : kC);
  stage.run_one();
  const std::uint64_t mine = next;
  ask(kB);
  for (int step = 0; step < 7; ++step) stage.run_one();
  CHECK(!stage.tokens_of(mine).empty());
  // One that asks again at once has its turn then, and no more than that.
  std::size_t seen = 0;
  for (int step = 0; step < 60; ++step) {
    stage.run_one();
    for (; seen < stage.told.size(); ++seen) {
      if (stage.told[seen].finish == FinishReason::kNone) continue;
      const std::uint64_t owner = owner_of.at(stage.told[seen].sequence.value);
      ++ended[owner];
      if (owner == kB) ask(kB);
    }
  }
  for (const std::uint64_t owner : {kA, kB, kC}) {
    CAPTURE(owner);
    CHECK(ended[owner] >= 6);
    CHECK(ended[owner] <= 8);
  }
}
