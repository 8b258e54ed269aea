#pragma once

#include <cstdint>

#include "kernels/stream.h"

namespace troupe::kernels {

inline constexpr std::int32_t kNeverBad = INT32_MAX;

/// first[r] = layer where it is kNeverBad and row r of x [rows, d] float32 holds an infinity or a
/// NaN. Reads 4 bytes a number.
void bad_rows(Stream& stream, const Tensor& x, std::int32_t layer, std::int32_t* first);

/// Whether no number is an infinity or a NaN.
bool all_finite(const float* x, std::size_t count);

}  // namespace troupe::kernels
