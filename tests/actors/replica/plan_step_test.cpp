#include "actors/replica/plan_step.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

using namespace troupe;

namespace {

struct Case {
  std::string name;
  std::vector<PlanSequence> running, waiting;  // key, computed, length, blocks, busy
  PlanLimits limits;                           // running, a step, rows, block size, free, prompts
  StepChoice expected;                         // preempted; key, rows, new blocks, found
  std::map<std::uint64_t, KvPrefix> cached = {};  // of waiting ones: blocks, of these idle
  std::int32_t shared = 0;  // blocks that all hold who are preempted: free with the last of them
};

PlanQuestions questions(const Case& c) {
  PlanQuestions ask;
  ask.cached = [&c](std::uint64_t key) {
    const auto found = c.cached.find(key);
    return found == c.cached.end() ? KvPrefix{} : found->second;
  };
  ask.freed = [&c](std::span<const std::uint64_t> keys) {
    std::int32_t freed = 0;
    for (const PlanSequence& sequence : c.running)
      if (std::ranges::find(keys, sequence.key) != keys.end()) freed += sequence.blocks - c.shared;
    return freed + (keys.size() + 1 == c.running.size() ? c.shared : 0);
  };
  return ask;
}

const Case kCases[] = {
    {"nothing to do", {}, {}, {8, 8, 64, 4, 10}, {{}, {}}},
    {"a newcomer gets its whole prompt", {}, {{1, 0, 9, 0}}, {8, 8, 64, 4, 10}, {{}, {{1, 9, 3}}}},
    {"a long prompt comes in chunks", {}, {{1, 0, 90, 0}}, {8, 8, 16, 4, 30}, {{}, {{1, 16, 4}}}},
    {"the next chunk", {{1, 16, 90, 4}}, {}, {8, 8, 16, 4, 30}, {{}, {{1, 16, 4}}}},
    {"a chunk is no more than prompts may have",
     {{1, 16, 70, 4}, {2, 8, 9, 3}},
     {{3, 0, 5, 0}},
     {8, 8, 64, 4, 300, 16},
     {{}, {{1, 16, 4}, {2, 1, 0}}}},
    {"a long prompt leaves half of a chunk to those behind it",
     {{1, 16, 900, 4}, {2, 0, 9, 0}},
     {{3, 0, 40, 0}},
     {8, 8, 64, 4, 300, 16},
     {{}, {{1, 8, 2}, {2, 8, 2}}}},
    {"and to newcomers, no more than they lack",
     {{1, 16, 900, 4}},
     {{2, 0, 5, 0}},
     {8, 8, 64, 4, 300, 16},
     {{}, {{1, 11, 3}, {2, 5, 2}}}},
    {"but not to one that cannot come",
     {{1, 16, 900, 4}},
     {{2, 0, 40, 0}},
     {8, 8, 64, 4, 230, 16},
     {{}, {{1, 16, 4}}}},
    {"a decoding row needs a block only at the edge",
     {{1, 7, 8, 2}, {2, 8, 9, 2}},
     {},
     {8, 8, 16, 4, 5},
     {{}, {{1, 1, 0}, {2, 1, 1}}}},
    {"decoding goes before an earlier prompt's chunk",
     {{1, 16, 90, 4}, {2, 8, 9, 3}, {3, 4, 5, 2}},
     {},
     {8, 8, 16, 4, 30},
     {{}, {{1, 14, 4}, {2, 1, 0}, {3, 1, 0}}}},
    {"what is in a step is left alone",
     {{1, 7, 8, 2, true}, {2, 8, 9, 3}},
     {},
     {8, 8, 16, 4, 5},
     {{}, {{2, 1, 0}}}},
    {"newcomers wait their turn: the second does not fit, the third must not pass",
     {},
     {{1, 0, 8, 0}, {2, 0, 40, 0}, {3, 0, 1, 0}},
     {8, 8, 64, 4, 5},
     {{}, {{1, 8, 2}}}},
    {"newcomers leave the blocks that running prompts still need",
     {{1, 4, 16, 1}},
     {{2, 0, 4, 0}},
     {8, 8, 8, 4, 3},
     {{}, {{1, 8, 2}}}},
    {"no more sequences than may run",
     {{1, 4, 5, 2}},
     {{2, 0, 4, 0}, {3, 0, 4, 0}},
     {2, 8, 64, 4, 9},
     {{}, {{1, 1, 0}, {2, 4, 1}}}},
    {"no more sequences than a step takes",
     {{1, 4, 5, 2}, {2, 4, 5, 2}, {3, 4, 5, 2}},
     {},
     {8, 2, 64, 4, 9},
     {{}, {{1, 1, 0}, {2, 1, 0}}}},
    {"without a block the latest gives its own up",
     {{1, 8, 9, 2}, {2, 5, 6, 2}, {3, 5, 6, 2}},
     {{4, 0, 1, 0}},
     {8, 8, 64, 4, 0},
     {{3}, {{1, 1, 1}, {2, 1, 0}}}},
    {"a chunk shrinks before anybody is preempted",
     {{1, 4, 90, 1}, {2, 5, 6, 2}},
     {},
     {8, 8, 64, 4, 1},
     {{}, {{1, 4, 1}, {2, 1, 0}}}},
    {"one in a step cannot be preempted; the others still wait behind the one that lacks a block",
     {{1, 8, 9, 2}, {2, 5, 6, 2, true}},
     {{3, 0, 1, 0}},
     {8, 8, 64, 4, 0},
     {{}, {}}},
    {"the last to arrive waits rather than pushing an earlier one out",
     {{1, 5, 6, 2}, {2, 8, 9, 2}},
     {},
     {8, 8, 64, 4, 0},
     {{}, {{1, 1, 0}}}},
    {"a preempted one comes back with its output as rows",
     {},
     {{2, 0, 12, 0}},
     {8, 8, 64, 4, 3},
     {{}, {{2, 12, 3}}}},
    {"what a newcomer finds is not computed, and its idle blocks are taken",
     {},
     {{1, 0, 20, 0}, {2, 0, 20, 0}},
     {8, 8, 64, 4, 5},
     {{}, {{1, 8, 2, {3, 2}}}},
     {{1, {3, 2}}, {2, {3, 0}}}},
    {"a prompt fits beside what it shares",
     {{1, 20, 21, 6}},
     {{2, 0, 22, 0}, {3, 0, 21, 0}},
     {8, 8, 64, 4, 2},
     {{}, {{1, 1, 0}, {2, 2, 1, {5, 0}}, {3, 1, 1, {5, 0}}}},
     {{2, {5, 0}}, {3, {5, 0}}}},
    {"a chunk is cut from what a newcomer lacks",
     {},
     {{1, 0, 90, 0}},
     {8, 8, 16, 4, 30},
     {{}, {{1, 16, 4, {10, 10}}}},
     {{1, {10, 10}}}},
    {"a block that two gave up comes free with the second",
     {{1, 8, 9, 2}, {2, 5, 6, 2}, {3, 5, 6, 2}},
     {},
     {8, 8, 64, 4, 0},
     {{3, 2}, {{1, 1, 1}}},
     {},
     2},
};

}  // namespace

TEST_CASE("a step is planned") {
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    CHECK(plan_step(c.running, c.waiting, c.limits, questions(c)) == c.expected);
  }
}
