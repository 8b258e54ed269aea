#include "kernels/cpu/weight_decode.h"

#include <algorithm>

namespace troupe::kernels::cpu {
namespace {

float plain(const StoredMatrix& s, const std::byte* codes, std::int64_t i) {
  const DType dtype = s.codes == Codes::kF32   ? DType::kF32
                      : s.codes == Codes::kF16 ? DType::kF16
                                               : DType::kBf16;
  return number_at(codes, dtype, i);
}

float code_less_zero(Codes codes, const std::byte* row, std::int64_t i, float zero) {
  if (codes == Codes::kFp8) return e4m3_to_float(static_cast<std::uint8_t>(row[i]));
  const std::uint32_t code = static_cast<std::uint32_t>(row[i / 2]) >> (i % 2 * 4) & 15;
  return codes == Codes::kFp4 ? fp4_value(code) : static_cast<float>(code) - zero;
}

}  // namespace

void decode(const StoredMatrix& s, const std::byte* codes, std::int64_t row, std::int64_t column,
            std::int64_t count, float* out) {
  if (s.codes == Codes::kF32 || s.codes == Codes::kBf16 || s.codes == Codes::kF16) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = plain(s, codes, column + i);
    return;
  }
  const Scales& scales = s.scales;
  const std::int64_t columns = (s.k + scales.block_k - 1) / scales.block_k;
  for (std::int64_t i = 0; i < count;) {
    const std::int64_t at = row / scales.block_n * columns + (column + i) / scales.block_k;
    const std::int64_t end =
        scales.data == nullptr
            ? count
            : std::min(count, ((column + i) / scales.block_k + 1) * scales.block_k - column);
    const float scale = scales.data ? number_at(scales.data, scales.dtype, at) : 1.0f;
    const float zero = scales.zeros ? static_cast<float>(scales.zeros[at] & 15) : 8.0f;
    for (; i < end; ++i) out[i] = code_less_zero(s.codes, codes, column + i, zero) * scale;
  }
}

}  // namespace troupe::kernels::cpu
