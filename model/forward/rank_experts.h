#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/stream.h"
#include "kernels/tensor.h"
#include "model/expert_set.h"
#include "model/forward/expert_ranks.h"
#include "model/forward/rank_cuts.h"
#include "model/forward/step.h"
#include "model/spec/model_spec.h"

namespace troupe {

/// Routed experts among tensor-parallel ranks. All ranks have all rows, so none has to be asked:
/// each computes the experts of its device for the rows of all, and sends the outputs with its part
/// of the shared experts' sum:
///
///     pairs, their numbers | its part of the sum, [rows, hidden] float32 | outputs, wire type
///
/// Of few rows all ranks get everything, and each adds up all rows. Of many, a rank gets what its
/// own rows need (RankCuts::scatters). Experts that no rank's device has are asked for as without
/// ranks, by the rank whose row it is; then that rank adds up its own rows and tells the others.
class RankExperts {
 public:
  RankExperts(const ModelSpec& model, RankCuts& ranks) : model_(model), ranks_(ranks) {}

  /// Deals out the pairs of all rows: Step::here is what this rank computes, Step::missing what it
  /// asks for elsewhere. `known` may be null: no rank computes for another.
  void deal(Step& step, const ExpertSet& set, const ExpertRanks* known) const;
  /// Room for this rank's part of the shared experts' sum, of all rows; and Step::here has places
  /// for its outputs.
  kernels::Tensor outgoing(kernels::Stream& stream, Step& step, const LayerSpec& layer);
  void send(kernels::Stream& stream, Step& step, const LayerSpec& layer) const;

  enum class Found {
    kAll,      ///< the outputs of all rows: every rank adds up all of them
    kOwn,      ///< those of its own
    kMissing,  ///< but for Step::missing, which was asked for, and Step::late, which was not
    kCorrupt,  ///< what came does not fit
  };
  /// Ranks may follow different placements for a moment. What was asked for and a rank has computed
  /// all the same is missing no more.
  Found take(kernels::Stream& stream, Step& step, const LayerSpec& layer) const;
  /// Whether a rank has computed that pair.
  static bool is_covered(const Step& step, const MissingExpert& of);
  /// What a message of these has beside sum and outputs, for each row at most.
  static constexpr std::uint64_t extra_row_bytes(std::uint64_t top_k) {
    return top_k * sizeof(std::uint32_t) + 4 * 64;
  }
  /// y = the shared experts' sum of all rows, or of this rank's own.
  void join_shared(kernels::Stream& stream, Step& step, const LayerSpec& layer,
                   const kernels::Tensor& y) const;

 private:
  void cut_sections(Step& step, const LayerSpec& layer) const;
  const RankSection& section_for(const Step& step, std::uint32_t to) const;
  std::span<const std::byte> section_from(const Step& step, std::uint32_t rank) const;
  bool take_section(Step& step, const LayerSpec& layer, const RankSection& own,
                    std::span<const std::byte> bytes, std::uint32_t rank) const;

  void list_late(Step& step) const;

  const ModelSpec& model_;
  RankCuts& ranks_;
};

}  // namespace troupe
