#pragma once

#include <cstdint>

namespace troupe::testing {

/// What a simulation had in it, so that a test can see that it tried what it claims to try.
struct SimulationReport {
  std::uint64_t requests = 0;
  std::uint64_t finished = 0;
  std::uint64_t failed = 0;
  std::uint64_t cancelled = 0;
  std::uint64_t replayed = 0;
  std::uint64_t preemptions = 0;
  std::uint64_t tokens = 0;
};

/// Runs the Router and a few Replicas on a virtual clock, with a network that delays and repeats
/// messages, tiny KV pools, and clients that come and go; the model is a hash. Checks as it goes
/// that every accepted request ends exactly once with exactly its tokens, that nothing leaks and
/// that the bounds hold. With `faults` steps fail, replicas are lost and requests time out.
SimulationReport simulate_serving(std::uint64_t seed, bool faults);

}  // namespace troupe::testing
