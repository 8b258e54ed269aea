#pragma once

// After a family's simd.h and lanes_math.h.

#include <cstring>

#include "kernels/cpu/attention_tile.h"

namespace troupe::kernels {
namespace {

constexpr int kWidth = 2 * kLanes;  // outputs side by side

/// How kWidth numbers of a cache row are read, as bf16.
struct Bf16Numbers {
  std::int64_t bytes;  ///< before them in their row
  [[gnu::always_inline]] I32 of(const std::byte* row) const { return load_dwords(row + bytes); }
};
struct E4m3Numbers {
  std::int64_t bytes;
  [[gnu::always_inline]] I32 of(const std::byte* row) const { return load_e4m3(row + bytes); }
};
/// A row ends among them: zeros follow.
struct LastNumbers {
  std::int64_t bytes, left;
  DType dtype;
  [[gnu::always_inline]] I32 of(const std::byte* row) const {
    alignas(64) std::byte padded[kWidth * 2] = {};
    if (left > 0) std::memcpy(padded, row + bytes, static_cast<std::size_t>(left));
    return dtype == DType::kBf16 ? load_dwords(padded) : load_e4m3(padded);
  }
};

/// body(numbers), for numbers [at, at + kWidth) of rows of `dim`.
template <class Body>
TROUPE_INLINE void with_numbers(DType dtype, std::int64_t dim, std::int64_t at, const Body& body) {
  const std::int64_t size = dtype == DType::kBf16 ? 2 : 1;
  if (dim - at < kWidth)
    body(LastNumbers{at * size, (dim - at) * size, dtype});
  else if (dtype == DType::kBf16)
    body(Bf16Numbers{at * size});
  else
    body(E4m3Numbers{at * size});
}

/// Dwords [pair of k][position] of kLanes rows: the pairs [k, k + kWidth) / 2, transposed. Asks
/// for the same k of the panel after this, and of these positions' values if they lie apart.
TROUPE_INLINE void transposed_keys(const std::byte* const* rows, const std::byte* const* values,
                                   DType dtype, std::int64_t k_dim, std::int64_t k,
                                   I32 (&pairs)[kLanes]) {
  with_numbers(dtype, k_dim, k, [&](const auto& numbers) {
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      __builtin_prefetch(rows[i + kWidth] + numbers.bytes);
      if (values != nullptr) __builtin_prefetch(values[i] + numbers.bytes, 0, 2);
      pairs[i] = numbers.of(rows[i]);
    }
  });
  transpose(pairs);
}

/// Whether a row holds what gives NaN when it is multiplied by zero.
inline bool has_infinite(const std::byte* row, DType dtype, std::int64_t count) {
  bool found = false;
  if (dtype == DType::kBf16) {
    for (std::int64_t i = 0; i < count; ++i) {
      std::uint16_t bits;
      std::memcpy(&bits, row + i * 2, 2);
      found |= (bits & 0x7f80) == 0x7f80;
    }
    return found;
  }
  for (std::int64_t i = 0; i < count; ++i)
    found |= (static_cast<std::uint8_t>(row[i]) & 0x7f) == 0x7f;
  return found;
}

}  // namespace
}  // namespace troupe::kernels
