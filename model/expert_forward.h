#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "model/config.h"
#include "model/expert_set.h"
#include "runtime/numerics.h"
#include "runtime/thread_pool.h"

namespace troupe {

/// One grouped pass of a layer's experts over rows, whichever replicas they came from. Every weight
/// is read once; no row's result depends on the others. Holds scratch that grows to the largest
/// pass. Used from the Device's compute thread only. A pair is a row and one expert for it: the
/// unit in which shards and expert groups talk.
class ExpertForward {
 public:
  ExpertForward(const ModelConfig& config, Numerics numerics, ThreadPool& threads);
  ~ExpertForward();

  /// Where outputs go: pair i writes [hidden] of the wire type at outputs[i].
  struct Pass {
    std::int32_t layer = 0;
    const std::byte* const* rows = nullptr;  ///< [pairs] each pair's input: wire type [hidden]
    std::span<const std::int32_t> experts;   ///< [pairs] in any order
    std::byte* const* outputs = nullptr;     ///< [pairs]
  };

  /// Runs the pairs whose experts are in the set and appends the indices of the others to `missing`
  /// (in rising order), leaving their outputs untouched.
  void run(const ExpertSet& experts, const Pass& pass, std::vector<std::int32_t>& missing);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe
