#include "tests/actors/router/serving_simulation.h"

#include <doctest/doctest.h>

using namespace troupe::testing;

namespace {

SimulationReport run_seeds(std::uint64_t first, std::uint64_t last, Faults faults) {
  SimulationReport total;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    CAPTURE(seed);
    const SimulationReport report = simulate_serving(seed, faults);
    total.requests += report.requests;
    total.finished += report.finished;
    total.failed += report.failed;
    total.cancelled += report.cancelled;
    total.replayed += report.replayed;
    total.preemptions += report.preemptions;
    total.tokens += report.tokens;
    total.losses += report.losses;
    total.moves += report.moves;
    total.timeouts += report.timeouts;
    total.poison += report.poison;
    total.poisoned += report.poisoned;
  }
  MESSAGE(total.requests << " requests, " << total.tokens << " tokens, " << total.preemptions
                         << " preemptions, " << total.replayed << " replays, " << total.failed
                         << " failures, " << total.cancelled << " cancelled, " << total.losses
                         << " losses, " << total.moves << " moves, " << total.timeouts
                         << " timeouts, " << total.poison << " poison, " << total.poisoned
                         << " killed by it");
  CHECK(total.finished + total.failed + total.cancelled == total.requests);
  return total;
}

}  // namespace

TEST_CASE("every accepted request ends once with exactly its tokens") {
  const SimulationReport total = run_seeds(1, 2000, Faults::kNone);
  CHECK(total.failed == 0);
  CHECK(total.cancelled > 100);
  CHECK(total.preemptions > 1000);
  CHECK(total.replayed > 100);
}

// Without replay (every sequence of a lost replica failed at once) 539 of the 24263 requests end
// with an error that they must not end with, and this test fails.
TEST_CASE(
    "whatever dies, accepted requests finish with exactly their tokens, or at their deadline") {
  const SimulationReport total = run_seeds(5001, 6500, Faults::kLosses);
  CHECK(total.failed == total.timeouts);
  CHECK(total.finished > 8000);
  CHECK(total.losses > 2000);
  CHECK(total.moves > 1000);
  CHECK(total.replayed > 3000);
}

TEST_CASE("requests that kill their workers are given up, the others finish beside them") {
  const SimulationReport total = run_seeds(8001, 9000, Faults::kPoison);
  CHECK(total.poison == 1000);
  CHECK(total.poisoned > total.poison);
  CHECK(total.poisoned <= 4 * total.poison);
  CHECK(total.finished > 4000);
}
