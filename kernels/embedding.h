#pragma once

#include <cstdint>

#include "kernels/stream.h"
#include "kernels/weight.h"

namespace troupe::kernels {

/// y[r] = table[ids[r]], widened to float32. table [n, k] packed with `rows`; every id is below n.
void embedding(Stream& stream, const Weight& table, const std::int32_t* ids, const Tensor& y);

}  // namespace troupe::kernels
