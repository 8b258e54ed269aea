#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/runner.h"
#include "tests/tier.h"

using namespace troupe::sim;
using namespace std::chrono_literals;
using troupe::Duration;

namespace {

RequestSpec request(Duration at, std::vector<troupe::TokenId> prompt, std::uint32_t tokens,
                    std::uint32_t n) {
  RequestSpec spec;
  spec.at = at;
  spec.prompt = std::move(prompt);
  spec.max_tokens = tokens;
  spec.n = n;
  spec.sampling.temperature = 1.0f;
  spec.sampling.seed = 7 * tokens + n;
  spec.timeout = 3600s;
  return spec;
}

/// Requests come together to a cluster of two workers: one has several choices and
/// log-probabilities, one no key, and one is cancelled.
History short_history(std::uint64_t seed) {
  History history;
  history.seed = seed;
  Shape& shape = history.shape;
  shape.device_memory = 40'000;
  shape.replicas = 1;
  shape.starts = {0ms, 0ms};
  history.requests.push_back(request(700ms, {3, 1, 4, 1, 5}, 6, 1));
  history.requests.push_back(request(705ms, {9, 2, 6}, 4, 2));
  history.requests.back().sampling.top_logprobs = 2;
  history.requests.push_back(request(710ms, {5, 3, 5, 8, 9, 7}, 3, 1));
  history.requests.push_back(request(712ms, {2, 7, 1, 8}, 9, 1));
  history.requests.back().cancel_after = 20ms;
  return history;
}

/// The head dies at its acts from the first request on to the last answer, at every so many-th.
struct Deaths {
  std::uint64_t every = 1;
  bool power_cut = false;
  bool until_found = false;
};
struct Died {
  std::uint64_t times = 0;    ///< histories in which it did
  std::uint64_t resumed = 0;  ///< requests that outlived it
  std::uint64_t found = 0;    ///< histories in which a rule was broken
  std::string violation;      ///< the first
};
Died die(History history, const Deaths& deaths) {
  Died died;
  history.faults.push_back({.kind = FaultKind::kHeadDies, .at = 690ms, .lasts = 1500ms});
  Fault& death = history.faults.back();
  death.power_cut = deaths.power_cut;
  for (death.act = 1; !deaths.until_found || died.found == 0; death.act += deaths.every) {
    const Outcome outcome = run_history(history);
    if (!outcome.violation.empty() && died.found++ == 0)
      died.violation = "at act " + std::to_string(death.act) + ": " + outcome.violation;
    if (outcome.counters.deaths == 0) break;
    ++died.times;
    died.resumed += outcome.counters.resumed;
  }
  return died;
}

/// Whether a cluster with something wrong in it breaks a rule in one of so many short histories.
bool found(Mutation mutation, bool power_cut) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    History history = short_history(seed);
    history.mutation = mutation;
    const Died died = die(history, {.every = 3, .power_cut = power_cut, .until_found = true});
    if (died.found == 0) continue;
    MESSAGE("seed " << seed << ", " << died.violation.substr(0, died.violation.find('\n')));
    return true;
  }
  return false;
}

}  // namespace

TEST_CASE("a head may die at any of its acts, with the power or without") {
  std::uint64_t resumed = 0;
  for (std::uint64_t seed = 1; seed <= (troupe::long_tier() ? 60 : 6); ++seed)
    for (const bool power_cut : {false, true}) {
      CAPTURE(seed);
      CAPTURE(power_cut);
      const Died died = die(short_history(seed), {.power_cut = power_cut});
      MESSAGE(died.times << " acts, " << died.resumed << " requests outlived their head");
      CHECK_MESSAGE(died.found == 0, died.violation);
      CHECK(died.times > 30);
      resumed += died.resumed;
    }
  CHECK(resumed > 0);
}

// Shown once: without the sync of the files that a head finds (journal_folder::read) these two
// seeds, whose disks are slow, lost requests and answers at acts 35, 36, 22 and 23.
TEST_CASE("a head may die and the next one with the power before its own file is on the disk") {
  std::vector<std::uint64_t> seeds = {4, 15};
  if (troupe::long_tier())
    for (std::uint64_t seed = 16; seed <= 60; ++seed) seeds.push_back(seed);
  std::uint64_t times = 0;
  for (const std::uint64_t seed : seeds)
    for (std::uint64_t act = 1; act <= 60; ++act)
      for (std::uint64_t next = 7; next <= (troupe::long_tier() ? 31 : 13); next += 3) {
        CAPTURE(seed);
        CAPTURE(act);
        CAPTURE(next);
        History history = short_history(seed);
        const Fault death{.kind = FaultKind::kHeadDies, .at = 690ms, .lasts = 4s, .act = act};
        history.faults = {death, death};
        history.faults[1].act = next;
        history.faults[1].power_cut = true;
        const Outcome outcome = run_history(history);
        CHECK_MESSAGE(outcome.violation.empty(), outcome.violation);
        times += outcome.counters.deaths == 2 ? 1 : 0;
      }
  CHECK(times > 50);
}

TEST_CASE("what is told before it is kept is found") {
  CHECK(found(Mutation::kKeptEarly, false));
  CHECK(found(Mutation::kEndsKeptEarly, false));
}

TEST_CASE("files that are not synced are found") { CHECK(found(Mutation::kNoSync, true)); }

TEST_CASE("a head that hears what was told to the one before it is found") {
  CHECK(found(Mutation::kOldTokens, false));
}
