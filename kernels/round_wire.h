#pragma once

#include "kernels/stream.h"

namespace troupe::kernels {

/// Rounds x [rows, d] float32 to y's type, bf16 or float32: nearest, ties to even.
void to_wire(Stream& stream, const Tensor& x, const Tensor& y);

/// Widens x [rows, d] of bf16 or float32 to y, float32.
void from_wire(Stream& stream, const Tensor& x, const Tensor& y);

}  // namespace troupe::kernels
