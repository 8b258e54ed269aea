#pragma once

#include <cstddef>

#include "kernels/scalar_math.h"

namespace troupe::kernels::cpu {

/// y = silu(gate) * up over n values; y may be gate or up.
TROUPE_INLINE void silu_row(const float* gate, const float* up, std::size_t n, float* y) {
  for (std::size_t i = 0; i < n; ++i) y[i] = gate[i] * sigmoid_f32(gate[i]) * up[i];
}

}  // namespace troupe::kernels::cpu
