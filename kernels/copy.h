#pragma once

#include "kernels/stream.h"

namespace troupe::kernels {

/// y = x, both [rows, heads, dim] of one type.
void copy(Stream& stream, const Tensor& x, const Tensor& y);

}  // namespace troupe::kernels
