#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/stream.h"

namespace troupe::kernels {

/// Which two elements of a head turn together by angle i.
enum class RopePairs : std::uint8_t {
  kInterleaved,  ///< (2i, 2i+1): DeepSeek (`rope_interleave`)
  kHalves,       ///< (i, i + half): Llama
};

/// cos and sin by position, [positions, half] float32; any scaling (YaRN) is already in them.
struct RopeTable {
  const float* cos = nullptr;
  const float* sin = nullptr;
  std::int64_t positions = 0;
  std::int64_t half = 0;
};

/// Turns the first 2 * half elements of every head of x [rows, heads, dim] in place:
///   (a, b) -> (a cos - b sin, b cos + a sin).
/// A pair stays where it is. Hugging Face's modeling_deepseek_v3.py
/// (apply_rotary_pos_emb_interleave) also moves the pairs apart into halves, for q and k alike,
/// which changes no dot product between them.
/// positions [rows], each below table.positions.
void rope(Stream& stream, const RopeTable& table, RopePairs pairs, const std::int32_t* positions,
          const Tensor& x);

}  // namespace troupe::kernels
