#pragma once

#include <cstdint>
#include <span>

#include "kernels/context.h"
#include "kernels/matrix.h"
#include "kernels/packed_matrix.h"

namespace troupe::kernels {

struct ExpertWeights {
  PackedMatrix gate, up;  ///< [inner, hidden]
  PackedMatrix down;      ///< [hidden, inner]
};

/// One expert and the rows of x that it works on.
struct ExpertCall {
  const ExpertWeights* weights = nullptr;
  std::span<const std::int32_t> rows;
};

/// out = down(silu(gate(x)) * up(x)) for every (call, row of the call), in the order of the calls:
/// x [rows, hidden] -> out [sum of calls' rows, hidden], float32. Not weighted, not summed.
///
/// All experts have the same shape. Weights of an expert that is called once are read once, and no
/// row's result depends on the others. Moves 3 * hidden * inner * 2 bytes an expert (bf16).
void expert_ffn(const Context& ctx, std::span<const ExpertCall> calls, ConstRows x, Rows out);

}  // namespace troupe::kernels
