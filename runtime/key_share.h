#pragma once

#include <cstdint>

namespace troupe {

/// What the requests of one owner (RequestName::owner: an API key) may have of the cluster, beside
/// those of the others.
struct KeyShare {
  std::uint64_t owner = 0;
  float weight = 1;               ///< one of 2 gets twice as much as one of 1
  std::uint32_t running_max = 0;  ///< requests at once; more of them wait; 0: no bound
  bool operator==(const KeyShare&) const = default;
};

/// Weights differ by less than what the largest replica holds of sequences.
inline constexpr float kWeightMin = 0.01f;
inline constexpr float kWeightMax = 100.0f;
/// Of `priority`: it is a part of a sequence's place in its queue (actors/replica/fair_turns.h).
inline constexpr std::int32_t kPriorityMax = 1'000'000;

}  // namespace troupe
