#pragma once

#include "kernels/context.h"
#include "kernels/matrix.h"

namespace troupe::kernels {

/// y = silu(gate) * up, silu(a) = a / (1 + exp(-a)) (SwiGLU, arXiv 2002.05202, sec. 2).
/// gate, up, y [rows, d]. y may be gate or up.
void silu_mul(const Context& ctx, ConstRows gate, ConstRows up, Rows y);

}  // namespace troupe::kernels
