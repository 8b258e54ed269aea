#pragma once

#include "kernels/stream.h"
#include "kernels/weight.h"

namespace troupe::kernels {

/// Rows as products want them: rounded, padded, laid out for the family. Good for every weight of
/// the same k, slices, groups and precision; lives in its stream's scratch.
struct Activation {
  const std::byte* data = nullptr;
  std::int64_t rows = 0, groups = 1, k = 0;
  int slices = 1;
  bool full_precision = false;
  std::int64_t row_bytes = 0, group_bytes = 0;
  std::int64_t low_bytes = 0;  ///< full precision: from a row's upper part to its lower one
  std::uint32_t* came = nullptr;  ///< of a GPU: what CTAs that share an output come to
};

/// x [rows, k], or [rows, groups, k] for a weight of several groups; float32 or bf16.
Activation prepare(Stream& stream, const Tensor& x, const Weight& weight);

/// y = x W^T (+ bias). W [n, k], y [rows, n] float32; with groups, y[:, g, :] = x[:, g, :] W[g]^T.
/// `bias` [n] float32 is added last.
///
/// The order in which one output is summed is fixed by k, the slices and the numerics
/// (kernels/README.md): rows never influence each other. Moves the weight once for few rows.
void linear(Stream& stream, const Weight& weight, const Activation& x, const Tensor& y,
            const float* bias = nullptr);

}  // namespace troupe::kernels
