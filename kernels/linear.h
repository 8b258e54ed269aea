#pragma once

#include <span>

#include "kernels/context.h"
#include "kernels/matrix.h"
#include "kernels/packed_matrix.h"

namespace troupe::kernels {

/// y = x W^T.   x [rows, k] float32, W [n, k] packed for ctx.numerics, y [rows, n] float32.
///
/// avx512_bf16 and amx_bf16 round x to bf16 first (not at full precision). The order in which one
/// output is summed is fixed by k, the slices and the family: rows never influence each other.
/// Moves the packed weight once (n * k * 2 bytes for bf16): the ceiling for few rows.
/// x and y must not overlap.
void linear(const Context& ctx, const PackedMatrix& weight, ConstRows x, Rows y);

/// One matrix per head: y[:, h, :] = x[:, h, :] W[h]^T.
/// x [rows, heads, k], W [heads] of [n, k], y [rows, heads, n]; all heads have the same shape.
void linear_heads(const Context& ctx, std::span<const PackedMatrix> weights, ConstHeads x, Heads y);

}  // namespace troupe::kernels
