#pragma once

#include <cstddef>
#include <span>

#include "kernels/stream.h"

namespace troupe::kernels {

/// One expert's output for one row, wherever it lies.
struct WeightedOutput {
  const std::byte* data = nullptr;  ///< [hidden] of the wire type
  float weight = 0;
};

/// y[row] += weight * output for the `per_row` outputs of every row, in the order given (which the
/// caller makes that of the expert ids). outputs [rows, per_row]; y [rows, hidden] float32.
void combine(Stream& stream, std::span<const WeightedOutput> outputs, std::size_t per_row,
             const Tensor& y);

/// The same, where the outputs [rows * per_row, hidden] lie one after the other, and `weights`
/// [rows, per_row] where ops reach them.
void combine_dense(Stream& stream, const Tensor& outputs, const float* weights, const Tensor& y);

}  // namespace troupe::kernels
