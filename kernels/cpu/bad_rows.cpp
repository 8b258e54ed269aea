#include "kernels/bad_rows.h"

#include <bit>

#include "kernels/cpu/ops.h"

namespace troupe::kernels {
namespace {

/// Numbers to look at from which on several threads do it.
constexpr std::int64_t kParallelAbove = 1 << 16;

}  // namespace

bool all_finite(const float* x, std::size_t count) {
  constexpr std::uint32_t kExponent = 0x7f800000;
  std::uint32_t bad = 0;
  for (std::size_t i = 0; i < count; ++i)
    bad |= (std::bit_cast<std::uint32_t>(x[i]) & kExponent) == kExponent ? 1u : 0u;
  return bad == 0;
}

void cpu::bad_rows(Stream& stream, const Tensor& x, std::int32_t layer, std::int32_t* first) {
  const auto check = [&](int, std::size_t row) {
    const auto* numbers =
        static_cast<const float*>(x.data) + static_cast<std::int64_t>(row) * x.row_stride;
    if (first[row] == kNeverBad && !all_finite(numbers, static_cast<std::size_t>(x.dim)))
      first[row] = layer;
  };
  const auto rows = static_cast<std::size_t>(x.rows);
  if (stream.pool() != nullptr && x.rows * x.dim >= kParallelAbove)
    return stream.pool()->parallel_for(rows, check);
  for (std::size_t row = 0; row < rows; ++row) check(0, row);
}

}  // namespace troupe::kernels
