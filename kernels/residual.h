#pragma once

#include "kernels/context.h"
#include "kernels/matrix.h"

namespace troupe::kernels {

/// y += x, both [rows, d].
void residual_add(const Context& ctx, ConstRows x, Rows y);

}  // namespace troupe::kernels
