#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/gated_mlp.h"

namespace troupe::kernels {

/// Where an expert's bytes lie, for ops that choose it themselves.
struct ExpertPlace {
  const std::byte *gate = nullptr, *up = nullptr, *down = nullptr;
  const float *gate_bias = nullptr, *up_bias = nullptr, *down_bias = nullptr;
};

/// All experts of a layer, by their number; at least one, all of the same shape.
struct ExpertTable {
  std::vector<const GatedMlp*> experts;
  std::shared_ptr<std::byte> places;  ///< [experts] ExpertPlace, where ops reach them
};

/// Whose `experts` must outlive it.
ExpertTable expert_table(Stream& stream, std::vector<const GatedMlp*> experts);

/// Rows of a step, and the experts that its gate chose: all of it where ops reach it.
struct ChosenRows {
  const std::byte* rows = nullptr;       ///< [count, hidden] of the wire type
  std::int32_t* ids = nullptr;           ///< [count, per_row]; those of a row differ
  std::byte* outputs = nullptr;          ///< [count, per_row, hidden] of the wire type
  std::int32_t* experts_read = nullptr;  ///< how many experts' weights the pass read
  std::int32_t count = 0;
};

/// Pairs of a row and an expert that are computed together, which bounds the scratch.
inline constexpr std::int32_t kPairsAtOnce = 4096;

/// outputs[r][i] = experts[ids[r][i]](rows[r]) for all rows of all pieces, without the host's
/// knowing the choice: what expert_mlp() gives, bit by bit. Of the numbers of experts read the
/// first piece gets all, the others zero.
///
/// Pairs are sorted by expert, then by row. Moves the three weights of each expert that was chosen,
/// again where `pairs_at_once` parts its pairs.
void chosen_mlp(Stream& stream, const ExpertTable& table, GatedAct act, std::int32_t per_row,
                std::span<const ChosenRows> pieces, std::int32_t pairs_at_once = kPairsAtOnce);

}  // namespace troupe::kernels
