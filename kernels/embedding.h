#pragma once

#include <cstdint>

#include "kernels/context.h"
#include "kernels/matrix.h"
#include "kernels/packed_matrix.h"

namespace troupe::kernels {

/// y[r] = table[ids[r]], widened to float32. table: dense [n, k]; every id is below n.
void embedding(const Context& ctx, const WeightSource& table, const std::int32_t* ids, Rows y);

}  // namespace troupe::kernels
