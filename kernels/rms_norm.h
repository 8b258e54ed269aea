#pragma once

#include "kernels/context.h"
#include "kernels/matrix.h"

namespace troupe::kernels {

/// y = x / sqrt(mean(x^2) + epsilon) * weight, row by row (arXiv 1910.07467, eq. 4).
/// x, y [rows, d]; weight [d] float32. y may be x.
void rms_norm(const Context& ctx, ConstRows x, const float* weight, float epsilon, Rows y);

}  // namespace troupe::kernels
