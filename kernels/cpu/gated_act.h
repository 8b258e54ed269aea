#pragma once

#include <cstdint>

#include "kernels/scalar_math.h"
#include "kernels/silu_mul.h"

namespace troupe::kernels::cpu {

/// y = act(gate, up) over n values; y may be gate or up.
TROUPE_INLINE void gated_act_row(GatedAct act, const float* gate, const float* up, std::int64_t n,
                                 float* y) {
  if (act.kind == GatedAct::Kind::kSilu) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = gate[i] * sigmoid_f32(gate[i]) * up[i];
    return;
  }
  const float limit = act.limit;
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = gate[i] > limit ? limit : gate[i];
    const float below = up[i] > limit ? limit : up[i];
    const float u = below < -limit ? -limit : below;
    y[i] = g * sigmoid_f32(1.702f * g) * (u + 1.0f);
  }
}

}  // namespace troupe::kernels::cpu
