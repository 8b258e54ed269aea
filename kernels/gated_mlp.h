#pragma once

#include <cstdint>
#include <span>

#include "kernels/silu_mul.h"
#include "kernels/stream.h"
#include "kernels/weight.h"

namespace troupe::kernels {

/// A gated MLP: down(act(gate(x), up(x))). Biases are vectors, or empty.
struct GatedMlp {
  Weight gate, up;  ///< [inner, hidden]
  Weight down;      ///< [hidden, inner]
  Weight gate_bias, up_bias, down_bias;
};

/// y = mlp(x) for all rows. x [rows, hidden] float32, y the same.
/// Moves the three weights once for few rows.
void gated_mlp(Stream& stream, const GatedMlp& mlp, GatedAct act, const Tensor& x, const Tensor& y);

/// One expert and its pairs: [first, first + count) of the pass.
struct ExpertCall {
  const GatedMlp* expert = nullptr;
  std::int32_t first = 0, count = 0;
};

/// outputs[i] = expert(rows[i]) for every pair of every call: rows and outputs are [hidden] of the
/// wire type, wherever they lie. Not weighted, not summed. All experts have the same shape.
///
/// An expert's weights are read once, and no pair's result depends on the others. Moves the three
/// weights of each expert.
void expert_mlp(Stream& stream, std::span<const ExpertCall> calls, GatedAct act,
                const std::byte* const* rows, std::byte* const* outputs);

}  // namespace troupe::kernels
