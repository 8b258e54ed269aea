#pragma once

#include <cstddef>
#include <span>

#include "kernels/stream.h"

namespace troupe::kernels {

/// y[r] = ((p0 + p1) + (p2 + p3)) + ... (+ bias): the sums of a product's slices that devices have
/// computed, joined as `linear` joins its own. `parts` are 1, 2, 4 or 8 dense [rows, n] float32, in
/// the order of the slices; y [rows, n] is none of them; `bias` [n] is added last, null is none.
/// Reads every part once.
void join(Stream& stream, std::span<const float* const> parts, const float* bias, const Tensor& y);

}  // namespace troupe::kernels
