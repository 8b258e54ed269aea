#pragma once

#include "kernels/stream.h"
#include "kernels/weight.h"

namespace troupe::kernels {

/// y = x / sqrt(mean(x^2) + epsilon) * weight, for every head of every row (arXiv 1910.07467,
/// eq. 4). x, y [rows, heads, d] float32; weight a vector [d]. y may be x.
void rms_norm(Stream& stream, const Tensor& x, const Weight& weight, float epsilon,
              const Tensor& y);

}  // namespace troupe::kernels
