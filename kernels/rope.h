#pragma once

#include <cstdint>

#include "kernels/context.h"
#include "kernels/matrix.h"

namespace troupe::kernels {

/// Which two elements of a head turn together by angle i.
enum class RopePairs : std::uint8_t {
  kInterleaved,  ///< (2i, 2i+1): DeepSeek (`rope_interleave`)
  kHalves,       ///< (i, i + dim/2): Llama
};

/// cos and sin by position, [positions, dim / 2] float32; any scaling (YaRN) is already in them.
struct RopeTable {
  const float* cos = nullptr;
  const float* sin = nullptr;
  std::size_t positions = 0;
  std::size_t half = 0;  ///< dim / 2
};

/// Turns every head of x [rows, heads, dim] in place:
///   (a, b) -> (a cos - b sin, b cos + a sin).
/// A pair stays where it is. Hugging Face's modeling_deepseek_v3.py
/// (apply_rotary_pos_emb_interleave) also moves the pairs apart into halves, for q and k alike,
/// which changes no dot product between them.
/// positions [rows], each below table.positions.
void rope(const Context& ctx, const RopeTable& table, RopePairs pairs,
          const std::int32_t* positions, Heads x);

}  // namespace troupe::kernels
