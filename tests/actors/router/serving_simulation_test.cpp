#include "tests/actors/router/serving_simulation.h"

#include <doctest/doctest.h>

using namespace troupe::testing;

namespace {

SimulationReport run_seeds(std::uint64_t first, std::uint64_t last, bool faults) {
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
  }
  MESSAGE(total.requests << " requests, " << total.tokens << " tokens, " << total.preemptions
                         << " preemptions, " << total.replayed << " replays, " << total.failed
                         << " failures, " << total.cancelled << " cancelled");
  CHECK(total.finished + total.failed + total.cancelled == total.requests);
  return total;
}

}  // namespace

TEST_CASE("every accepted request ends once with exactly its tokens") {
  const SimulationReport total = run_seeds(1, 2000, false);
  CHECK(total.failed == 0);
  CHECK(total.cancelled > 100);
  CHECK(total.preemptions > 1000);
  CHECK(total.replayed > 100);
}

TEST_CASE("with failing steps, lost replicas and deadlines, requests end or say why") {
  const SimulationReport total = run_seeds(5001, 6500, true);
  CHECK(total.failed > 500);
  CHECK(total.finished > 1000);
}
