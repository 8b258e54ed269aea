#pragma once

#include <cstdint>

#include "kernels/stream.h"

namespace troupe::kernels {

/// What joins a gated MLP's two halves.
struct GatedAct {
  enum class Kind : std::uint8_t {
    kSilu,  ///< g sigmoid(g) u (SwiGLU, arXiv 2002.05202, sec. 2)
    /// g' sigmoid(1.702 g') (u' + 1), g' = min(g, limit), u' = u within +-limit
    /// (modeling_gpt_oss.py)
    kClampedSwiglu,
  };
  Kind kind = Kind::kSilu;
  float limit = 0;
};

/// y = act(gate, up). gate, up, y [rows, d] float32; y may be gate or up.
void silu_mul(Stream& stream, GatedAct act, const Tensor& gate, const Tensor& up, const Tensor& y);

}  // namespace troupe::kernels
