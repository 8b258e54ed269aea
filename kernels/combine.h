#pragma once

#include <cstdint>
#include <span>

#include "kernels/context.h"
#include "kernels/matrix.h"
#include "runtime/numerics.h"

namespace troupe::kernels {

/// One expert's output for one row, rounded to the wire type, wherever it lies.
struct ExpertOutput {
  const void* data = nullptr;  ///< [hidden] of the wire type
  float weight = 0;
};

/// y[row] += weight * output for the `per_row` outputs of every row, in the order given (which the
/// caller makes that of the expert ids). outputs [rows, per_row]; y [rows, hidden] float32.
void combine(const Context& ctx, WireType type, std::span<const ExpertOutput> outputs,
             std::size_t per_row, Rows y);

}  // namespace troupe::kernels
