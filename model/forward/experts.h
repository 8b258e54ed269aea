#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/chosen_mlp.h"
#include "kernels/stream.h"
#include "model/forward/expert_pairs.h"
#include "model/spec/model_spec.h"

namespace troupe {

/// One grouped pass of a layer's experts over rows, whichever replicas they came from. Every weight
/// is read once; no row's result depends on the others. Used from the Device's compute thread only.
class ExpertForward final : public ExpertArithmetic {
 public:
  ExpertForward(const ModelSpec& spec, const kernels::Stream::Options& stream);

  /// Experts are taken together until they have this many rows, which bounds the scratch.
  static constexpr std::int32_t kRowsPerCall = kernels::kPairsAtOnce;

  std::size_t run(const ExpertSet& experts, const ExpertPairs& pairs) override;

  /// What it computes with, for who brings rows and fetches outputs.
  kernels::Stream& stream() { return stream_; }

  /// Held for temporaries.
  std::size_t scratch_bytes() { return stream_.scratch().bytes(); }

 private:
  const kernels::ExpertTable& table_of(const ExpertSet& experts, std::int32_t layer);

  kernels::Stream stream_;
  kernels::GatedAct act_;
  std::int32_t top_k_;
  std::uint64_t tables_of_ = 0;               ///< ExpertSet::id()
  std::vector<kernels::ExpertTable> tables_;  ///< [layers], once they are asked for
  std::vector<std::int32_t> next_;            ///< [experts + 1] where the next pair of each goes
  // Grouped by expert, in the order they came.
  std::vector<const std::byte*> rows_;
  std::vector<std::byte*> outputs_;
  std::vector<kernels::ExpertCall> calls_;
};

}  // namespace troupe
