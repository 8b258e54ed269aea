#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/chosen_mlp.h"
#include "model/expert_set.h"

namespace troupe {

/// Rows of one layer, each with an expert for it: the unit in which shards and expert groups talk.
/// Pair i reads [hidden] of the wire type at rows[i] and writes as much at outputs[i].
struct ExpertPairs {
  std::int32_t layer = 0;
  std::span<const std::byte* const> rows;
  std::span<const std::int32_t> experts;  ///< in any order, each below the model's number
  std::span<std::byte* const> outputs;
  /// Not empty: instead of the lists, rows whose experts only the device knows. All of the layer's
  /// are in the set.
  std::span<const kernels::ChosenRows> chosen = {};
};

/// Computes them: ExpertForward; the simulation has its own.
class ExpertArithmetic {
 public:
  virtual ~ExpertArithmetic() = default;
  /// Runs the pairs whose experts are in the set and leaves the outputs of the others untouched.
  /// Gives how many experts' weights it read; of chosen rows that is told where they say.
  virtual std::size_t run(const ExpertSet& experts, const ExpertPairs& pairs) = 0;
};

}  // namespace troupe
