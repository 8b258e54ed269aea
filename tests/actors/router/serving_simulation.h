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
  std::uint64_t losses = 0;    ///< replicas whose node died
  std::uint64_t moves = 0;     ///< replicas that gave way to another in order
  std::uint64_t timeouts = 0;  ///< requests that ended at their deadline
  std::uint64_t poison = 0;    ///< requests that kill every worker that runs them
  std::uint64_t poisoned = 0;  ///< replicas that these killed
};

enum class Faults : std::uint8_t {
  kNone,
  kLosses,  ///< steps fail or hang, nodes die and others come, replicas move, requests time out
  kPoison,  ///< the same, and some requests kill every worker that computes their prompt
};

/// Runs the Router and a few Replicas on a virtual clock, with a network that delays and repeats
/// messages, tiny KV pools, and clients that come and go; the model is a hash. Checks as it goes
/// that every accepted request ends exactly once with exactly its tokens, whatever dies meanwhile
/// (errors are only for deadlines, departures and poison), that nothing leaks and that the bounds
/// hold.
SimulationReport simulate_serving(std::uint64_t seed, Faults faults);

}  // namespace troupe::testing
