#pragma once

#include "kernels/cuda/math.h"
#include "kernels/silu_mul.h"

namespace troupe::kernels::TROUPE_CUDA_SPACE {

DEVICE float gated_act(GatedAct act, float gate, float up) {
  if (act.kind == GatedAct::Kind::kSilu) return gate * sigmoid_f32(gate) * up;
  const float g = gate > act.limit ? act.limit : gate;
  const float below = up > act.limit ? act.limit : up;
  const float u = below < -act.limit ? -act.limit : below;
  return g * sigmoid_f32(1.702f * g) * (u + 1.0f);
}

}  // namespace troupe::kernels::TROUPE_CUDA_SPACE
