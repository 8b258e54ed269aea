#pragma once

#include "kernels/stream.h"

namespace troupe::kernels {

/// y += x, both [rows, d] float32.
void residual_add(Stream& stream, const Tensor& x, const Tensor& y);

}  // namespace troupe::kernels
