#include "twin_products.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/scalar_math.h"

namespace troupe::kernels {
namespace {

float from_bits(std::uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

/// Bits of a small floating-point format with `mantissa` bits and this bias; no infinities.
double small_float(unsigned code, int bits, int mantissa, int bias) {
  const unsigned exponent = (code & ((1u << (bits - 1)) - 1)) >> mantissa;
  const unsigned rest = code & ((1u << mantissa) - 1);
  const double sign = (code >> (bits - 1) & 1) != 0 ? -1 : 1;
  if (exponent == 0) return sign * std::ldexp(rest, 1 - bias - mantissa);
  return sign * std::ldexp(rest + (1u << mantissa), static_cast<int>(exponent) - bias - mantissa);
}

double number(const std::byte* data, DType dtype, std::int64_t i) {
  const auto size = static_cast<std::int64_t>(dtype_size(dtype));
  std::uint32_t bits = 0;
  std::memcpy(&bits, data + i * size, static_cast<std::size_t>(size));
  if (dtype == DType::kF32) return static_cast<double>(from_bits(bits));
  if (dtype == DType::kBf16) return static_cast<double>(from_bits(bits << 16));
  if (dtype == DType::kF8E8M0) return std::ldexp(1.0, static_cast<int>(bits) - 127);
  if ((bits & 0x7c00) == 0x7c00) {
    if ((bits & 0x3ff) != 0) return std::numeric_limits<double>::quiet_NaN();
    return (bits & 0x8000) != 0 ? -HUGE_VAL : HUGE_VAL;
  }
  return small_float(bits, 16, 10, 15);
}

float flushed(double exact) {
  const auto x = static_cast<float>(exact);
  return std::fabs(x) < 0x1p-126f ? 0.0f : x;
}

float one_value(const StoredMatrix& m, const std::byte* codes, std::int64_t row, std::int64_t i) {
  const std::int64_t at = row * m.k + i;
  switch (m.codes) {
    case Codes::kF32: return static_cast<float>(number(codes, DType::kF32, at));
    case Codes::kBf16: return static_cast<float>(number(codes, DType::kBf16, at));
    case Codes::kF16: return static_cast<float>(number(codes, DType::kF16, at));
    default: break;
  }
  double scale = 1, zero = 8;
  if (m.scales.data != nullptr) {
    const std::int64_t columns = (m.k + m.scales.block_k - 1) / m.scales.block_k;
    const std::int64_t s = row / m.scales.block_n * columns + i / m.scales.block_k;
    scale = number(m.scales.data, m.scales.dtype, s);
    if (std::fabs(scale) < 0x1p-126) scale = 0;  // denormals are zero
    if (m.scales.zeros != nullptr) zero = m.scales.zeros[s];
  }
  if (m.codes == Codes::kFp8)
    return flushed(small_float(static_cast<unsigned>(codes[at]), 8, 3, 7) * scale);
  const unsigned nibble = static_cast<unsigned>(codes[at / 2]) >> (at % 2 * 4) & 15;
  if (m.codes == Codes::kFp4) return flushed(small_float(nibble, 4, 1, 1) * scale);
  return flushed((nibble - zero) * scale);
}

/// P(x, w) of `avx512_bf16`.
float twin_p_one_chain(const std::vector<float>& x, const std::vector<float>& w) {
  float sum = 0;
  for (std::size_t block = 0; block < x.size(); block += 32) {
    float chain = 0;
    for (std::size_t i = block; i < std::min(x.size(), block + 32); i += 2) {
      if (i + 1 < x.size()) chain = std::fma(x[i + 1], w[i + 1], chain);
      chain = std::fma(x[i], w[i], chain);
    }
    sum += chain;
  }
  return sum;
}

/// P(x, w) of `cuda_mma`, an mma as the twin of a GPU computes it where it is not asked for another
/// order: in float64, rounded once.
float twin_p_mma(const std::vector<float>& x, const std::vector<float>& w) {
  float sum = 0;
  for (std::size_t stretch = 0; stretch < x.size(); stretch += 256) {
    float of_stretch = 0;
    for (std::size_t block = stretch; block < std::min(x.size(), stretch + 256); block += 32)
      for (const std::size_t half : {0, 1}) {
        auto of_mma = static_cast<double>(of_stretch);
        for (const std::size_t pair : {0, 2})  // a lane's first pairs, then its second ones
          for (std::size_t step = 0; step < 4; ++step)
            for (std::size_t i = 0; i < 2; ++i) {
              const std::size_t k = block + step * 8 + half * 4 + pair + i;
              if (k < x.size()) of_mma += static_cast<double>(x[k]) * static_cast<double>(w[k]);
            }
        of_stretch = static_cast<float>(of_mma);
      }
    sum += of_stretch;
  }
  return sum;
}

/// P(x, w).
float twin_p(const std::vector<float>& x, const std::vector<float>& w) {
  float sum = 0;
  for (std::size_t block = 0; block < x.size(); block += 32) {
    float even = 0, odd = 0;
    for (std::size_t i = block; i < std::min(x.size(), block + 32); i += 2) {
      even = std::fma(x[i], w[i], even);
      if (i + 1 < x.size()) odd = std::fma(x[i + 1], w[i + 1], odd);
    }
    sum += even + odd;
  }
  return sum;
}

}  // namespace

float twin_bf(float x) {
  if (std::isnan(x)) return from_bits(0x7fc00000u);
  if (std::isinf(x)) return x;
  if (std::fabs(x) < 0x1p-126f) return 0;
  std::uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  if ((bits & 0xffff) == 0) return x;  // is one already
  int exponent = 0;
  const double fraction = std::frexp(static_cast<double>(x), &exponent);  // 0.5 to 1
  // 8 bits; nearbyint takes the even one of two that are as near.
  return static_cast<float>(std::ldexp(std::nearbyint(fraction * 256), exponent - 8));
}

std::vector<float> twin_values(const StoredMatrix& m, const std::byte* codes) {
  std::vector<float> values;
  for (std::int64_t row = 0; row < m.n; ++row)
    for (std::int64_t i = 0; i < m.k; ++i) values.push_back(one_value(m, codes, row, i));
  return values;
}

float TwinSum::slice(const float* x, const float* w, std::int64_t k) const {
  if (numerics == Numerics::kReference) {
    float sum = 0;
    for (std::int64_t i = 0; i < k; ++i) sum += x[i] * w[i];
    return sum;
  }
  const auto upper = [k](const float* from) {
    std::vector<float> v;
    for (std::int64_t i = 0; i < k; ++i) v.push_back(twin_bf(from[i]));
    return v;
  };
  const auto rest = [k](const float* from) {
    std::vector<float> v;
    for (std::int64_t i = 0; i < k; ++i) v.push_back(twin_bf(from[i] - twin_bf(from[i])));
    return v;
  };
  const auto p = by_tensor_cores(numerics)     ? twin_p_mma
                 : sums_in_one_chain(numerics) ? twin_p_one_chain
                                               : twin_p;
  if (!full_precision) return p(upper(x), upper(w));
  const float sum = p(upper(x), upper(w)) + p(rest(x), upper(w));
  return f32_weight ? sum + p(upper(x), rest(w)) : sum;
}

float TwinSum::operator()(const float* x, const float* w, std::int64_t k) const {
  std::vector<float> sums;
  const std::int64_t part = k / slices;
  for (int s = 0; s < slices; ++s) sums.push_back(slice(x + s * part, w + s * part, part));
  for (; sums.size() > 1; sums.resize(sums.size() / 2))
    for (std::size_t i = 0; i < sums.size() / 2; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
  return sums[0];
}

float twin_act(GatedAct act, float gate, float up) {
  if (act.kind == GatedAct::Kind::kSilu) return gate * (1 / (1 + exp_f32(-gate))) * up;
  const float g = gate > act.limit ? act.limit : gate;
  const float u = up > act.limit ? act.limit : up < -act.limit ? -act.limit : up;
  return g * (1 / (1 + exp_f32(-(1.702f * g)))) * (u + 1);
}

}  // namespace troupe::kernels
