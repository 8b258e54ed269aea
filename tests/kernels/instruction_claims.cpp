/// What PTX's manual says that an instruction answers, by exact arithmetic: a number is a float64,
/// an operation is computed there and rounded once, by rounding that is written here.
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "instructions.h"

namespace troupe::kernels {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// `digits` significant binary digits, ties to even.
double rounded(double x, int digits) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);  // of 0.5 to 1
  return std::ldexp(std::nearbyint(std::ldexp(fraction, digits)), exponent - digits);
}

/// A float32 with denormals as zeros of their sign: `.ftz` of what goes in.
double widened(std::uint32_t bits) {
  const double sign = (bits >> 31) != 0 ? -1.0 : 1.0;
  const int exponent = static_cast<int>(bits >> 23 & 255u);
  const double fraction = bits & 0x7fffffu;
  if (exponent == 255) return fraction != 0 ? kNan : sign * kInfinity;
  if (exponent == 0) return sign * 0.0;
  return sign * std::ldexp(fraction + 0x1p23, exponent - 150);
}

/// The float32 nearest to it, and `.ftz` of what comes out.
Claim narrowed(double x) {
  if (std::isnan(x)) return {0x7fc00000};
  const std::uint32_t sign = std::signbit(x) ? 0x80000000u : 0u;
  const double near = std::fabs(rounded(x, 24));
  if (near >= 0x1p128) return {sign | 0x7f800000u};
  if (near < 0x1p-126) return {sign};
  int exponent = 0;
  const auto digits = static_cast<std::uint32_t>(std::ldexp(std::frexp(near, &exponent), 24));
  const auto biased = static_cast<std::uint32_t>(exponent + 126);
  return {sign | (biased << 23) | (digits & 0x7fffffu), std::fabs(x) < 0x1p-126};
}

/// A float32 that operations are written with as the definition has them.
struct Number {
  double value;
  Number(double exact) : value(widened(narrowed(exact).bits)) {}  // NOLINT: literals
};
Number operator+(Number a, Number b) { return a.value + b.value; }
Number operator-(Number a, Number b) { return a.value - b.value; }
Number operator*(Number a, Number b) { return a.value * b.value; }
Number operator/(Number a, Number b) { return a.value / b.value; }

/// a b + c, of which only what is cut off lies behind the float64's last digit: rounded to odd, so
/// that it rounds once.
double exact_fma(double a, double b, double c) {
  const double product = a * b;  // 48 digits: exact
  const double sum = product + c;
  if (!std::isfinite(sum) || !std::isfinite(product)) return sum;
  const double back = sum - product;
  const double rest = (product - (sum - back)) + (c - back);
  const auto bits = std::bit_cast<std::uint64_t>(sum);
  if (rest == 0 || (bits & 1) != 0) return sum;
  const bool outward = (rest > 0) == (sum > 0);
  return std::bit_cast<double>(outward ? bits + 1 : bits - 1);
}

/// kernels/scalar_math.h, operation by operation (Cephes' expf).
double exponential(double x) {
  if (std::isnan(x)) return kNan;
  if (x < -87) return 0;
  const Number n = (Number(std::fmin(x, 89)) * 1.44269504088896341f + 12582912.0) - 12582912.0;
  const Number r = (Number(std::fmin(x, 89)) - n * 0.693359375) + n * double{2.12194440e-4f};
  Number p = double{1.9875691500e-4f};
  for (const float c :
       {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
    p = p * r + double{c};
  p = p * (r * r) + r + 1.0;
  const int power = static_cast<int>(n.value), half = power >= 0 ? power / 2 : -((1 - power) / 2);
  return (p * std::ldexp(1.0, half) * std::ldexp(1.0, power - half)).value;
}

/// A float64 whose every operation is computed with twice its digits and more, and rounded once.
struct Double {
  double value;
  Double(double exact) : value(exact) {}  // NOLINT: literals
};
using Wide = __float128;
Double operator+(Double a, Double b) { return static_cast<double>(Wide(a.value) + b.value); }
Double operator-(Double a, Double b) { return static_cast<double>(Wide(a.value) - b.value); }
Double operator*(Double a, Double b) { return static_cast<double>(Wide(a.value) * b.value); }
Double operator/(Double a, Double b) { return static_cast<double>(Wide(a.value) / b.value); }

/// kernels/scalar_math.h, operation by operation: a sum of Taylor's.
double exponential_64(double x) {
  if (x < -708.39641853226408) return 0;
  const Double within = std::fmin(x, 710.0), shift = 6755399441055744.0;
  const Double n = (within * 1.4426950408889634074 + shift) - shift;
  const Double r = (within - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
  double factorial = 6227020800.0;
  Double p = Double(1) / factorial;
  for (int i = 13; i > 3; --i) {
    factorial /= i;
    p = p * r + Double(1) / factorial;
  }
  p = (p * r + 0.5) * (r * r) + r + 1.0;
  const int power = static_cast<int>(n.value), half = power >= 0 ? power / 2 : -((1 - power) / 2);
  return (p * std::ldexp(1.0, half) * std::ldexp(1.0, power - half)).value;
}

/// The same: 2 atanh((m - 1) / (m + 1)) and the exponent's part.
double logarithm_64(double x) {
  if (x == 0) return -kInfinity;
  int exponent = 0;
  double m = 2 * std::frexp(x, &exponent);  // of 1 to 2
  --exponent;
  if (m > 1.4142135623730951) m /= 2, ++exponent;
  const Double s = (Double(m) - 1) / (Double(m) + 1), z = s * s;
  Double p = Double(1) / 25;
  for (int i = 23; i > 1; i -= 2) p = p * z + Double(1) / i;
  const Double log_m = Double(2) * s + Double(2) * s * z * p, e = exponent;
  return (e * 6.93147180369123816490e-01 + (log_m + e * 1.90821492927058770002e-10)).value;
}

double joined(std::uint32_t high, std::uint32_t low) {
  return std::bit_cast<double>(std::uint64_t{high} << 32 | low);
}

Claim double_claim(std::string_view name, const std::uint32_t* w) {
  const double x = joined(w[0], w[1]), y = joined(w[2], w[3]);
  if (name == "narrow") return narrowed(x);
  double answer = kNan;
  if (name.starts_with("add")) answer = (Double(x) + y).value;
  if (name.starts_with("multiply")) answer = (Double(x) * y).value;
  if (name.starts_with("divide")) answer = (Double(x) / y).value;
  if (name.starts_with("exp")) answer = exponential_64(x);
  if (name.starts_with("log")) answer = logarithm_64(x);
  if (name.starts_with("widen")) answer = widened(w[0]);
  const auto bits = std::bit_cast<std::uint64_t>(answer);
  return {static_cast<std::uint32_t>(name.ends_with("_high") ? bits >> 32 : bits)};
}

/// A number of c + a b, where an order does not matter.
Claim mma_claim(std::uint32_t set, std::uint32_t i, std::uint32_t lane) {
  const std::uint32_t row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
  double sum = widened(mma_c(set, row, column));
  for (std::uint32_t k = 0; k < 16; ++k)
    sum += widened(mma_a(set, row, k) << 16) * widened(mma_b(set, k, column) << 16);
  Claim claim = narrowed(sum);
  claim.unknown = mma_kind(set) == MmaKind::kDrawn;
  return claim;
}

/// Number `column` of a row of 32, of which lane l names row 5 l + set.
std::uint32_t matrix_number(std::uint32_t set, std::uint32_t matrix, std::uint32_t row,
                            std::uint32_t column) {
  const std::uint32_t at = ((matrix * 8 + row) * 5 + set) % 32;
  return mixed(set, at, column / 2) >> (column % 2 * 16) & 0xffffu;
}

Claim warp_claim(const Instruction& instruction, std::size_t i) {
  const std::string_view name = instruction.name;
  const std::uint32_t* w = instruction.asked[i].words;
  if (name == "mma") return mma_claim(w[0], w[1], w[2]);
  if (name == "any") return {w[0] != 0 ? 1u : 0u};
  if (name == "copy_later") return {w[0] ^ (w[2] != 0 ? 0 : instruction.asked[i ^ 1].words[1])};
  if (name.starts_with("mma_")) return {1};
  const std::uint32_t row = w[2] / 4, column = w[2] % 4 * 2;
  if (name == "ldmatrix")
    return {matrix_number(w[0], w[1], row, column) | matrix_number(w[0], w[1], row, column + 1)
                                                         << 16};
  return {matrix_number(w[0], w[1], column, row) | matrix_number(w[0], w[1], column + 1, row)
                                                       << 16};
}

/// OCP's small formats: `sign`, `exponent` bits with a bias, fraction.
double small_float(std::uint32_t code, int exponent_bits, int fraction_bits, int bias) {
  const std::uint32_t fraction = code & ((1u << fraction_bits) - 1);
  const int exponent = static_cast<int>(code >> fraction_bits & ((1u << exponent_bits) - 1));
  const double sign = (code >> (exponent_bits + fraction_bits) & 1) != 0 ? -1.0 : 1.0;
  const double whole = exponent == 0 ? 0 : std::ldexp(1.0, fraction_bits);
  return sign * std::ldexp(fraction + whole, (exponent == 0 ? 1 : exponent) - bias - fraction_bits);
}

double e4m3(std::uint32_t code) {
  return (code & 0x7f) == 0x7f ? kNan : small_float(code, 4, 3, 7);
}

double half_float(std::uint32_t code) {
  if ((code & 0x7c00) != 0x7c00) return small_float(code, 5, 10, 15);
  return (code & 0x3ff) != 0 ? kNan : (code & 0x8000) != 0 ? -kInfinity : kInfinity;
}

/// The nearest of all codes, the even one of two; 448 for what is larger.
std::uint32_t nearest_e4m3(double x) {
  if (std::isnan(x)) return 0x7f;
  std::uint32_t best = 0;
  for (std::uint32_t code = 0; code < 0x7f; ++code) {
    const double off = std::fabs(std::fabs(x) - e4m3(code));
    const double best_off = std::fabs(std::fabs(x) - e4m3(best));
    if (off < best_off || (off == best_off && code % 2 == 0)) best = code;
  }
  if (std::fabs(x) > 448) best = 0x7e;
  return best | (std::signbit(x) ? 0x80u : 0u);
}

/// bf(x), of the definition.
std::uint32_t nearest_bf16(double x) {
  if (std::isnan(x)) return 0x7fc0;
  if (std::fabs(x) < 0x1p-126) return 0;
  return narrowed(rounded(x, 8)).bits >> 16;
}

/// Of an integer within 32 bits.
std::uint32_t whole(double x) { return static_cast<std::uint32_t>(static_cast<std::int64_t>(x)); }

std::uint32_t exactly(double x) { return narrowed(x).bits; }

Claim float_claim(std::string_view name, const std::uint32_t* w) {
  const double a = widened(w[0]), b = widened(w[1]), c = widened(w[2]);
  // Of one operation on float32s a float64 has digits enough that rounding twice is rounding once
  // (Figueroa, 1995); fma is the exception.
  if (name == "add") return narrowed(a + b);
  if (name == "subtract") return narrowed(a - b);
  if (name == "multiply") return narrowed(a * b);
  if (name == "divide") return narrowed(a / b);
  if (name == "reciprocal") return narrowed(1 / a);
  if (name == "fma") return narrowed(exact_fma(a, b, c));
  if (name == "root") return narrowed(std::sqrt(a));
  if (name == "larger") return {a > b ? w[0] : w[1]};
  if (name == "exp") return narrowed(exponential(a));
  if (name == "sigmoid") return narrowed((Number(1) / (Number(1) + exponential(-a))).value);
  if (name == "from_e4m3") return narrowed(e4m3(w[0]));
  if (name == "e4m3_pair") return narrowed(e4m3(w[0] >> (8 * w[1]) & 255u));
  if (name == "e2m1_pair") return {exactly(small_float(w[0] >> (4 * w[1]) & 15u, 2, 1, 1))};
  if (name == "widen_halves") return narrowed(half_float(w[0] >> (16 * w[1]) & 0xffffu));
  if (name == "from_e8m0")
    return narrowed(w[0] == 255 ? kNan : std::ldexp(1.0, static_cast<int>(w[0]) - 127));
  if (name == "from_f16") return narrowed(half_float(w[0]));
  if (name == "from_int4") return narrowed((static_cast<double>(w[0]) - w[1]) * c);
  return {0xdeadbeef};
}

}  // namespace

Claim claim(const Instruction& instruction, std::size_t i) {
  const std::string_view name = instruction.name;
  const std::uint32_t* w = instruction.asked[i].words;
  const auto a = static_cast<std::int32_t>(w[0]), b = static_cast<std::int32_t>(w[1]);
  if (name == "round_pair")
    return {nearest_bf16(widened(w[0])) | nearest_bf16(widened(w[1])) << 16};
  if (name == "to_bf16") return {nearest_bf16(widened(w[0]))};
  if (name == "low_half") return {w[0] << 16};
  if (name == "high_half") return {w[0] >> 16 << 16};
  if (name == "to_e4m3") return {nearest_e4m3(widened(w[0]))};
  if (name == "to_float") return {exactly(static_cast<double>(w[0]) - 0x1p31)};
  if (name == "shift_right") {
    std::uint64_t wide = std::uint64_t{w[0]} << 32 | w[1];
    for (std::uint32_t n = 0; n < w[2]; ++n) wide /= 2;
    return {static_cast<std::uint32_t>(wide)};
  }
  if (name == "quotient") return {whole(std::trunc(double(a) / b))};
  if (name == "remainder") return {whole(std::fmod(double(a), double(b)))};
  if (name == "wide_product")
    return {whole(static_cast<double>(std::floor(static_cast<long double>(a) * b / 0x1p32L)))};
  if (name == "shuffle") return {instruction.asked[i / 32 * 32 + w[1]].words[0]};
  if (name == "load_quad") return {w[w[0] % 4]};
  if (name == "any" || name == "copy_later" || name.starts_with("mma") ||
      name.starts_with("ldmatrix"))
    return warp_claim(instruction, i);
  if (name == "narrow" || name.ends_with("_high") || name.ends_with("_low"))
    return double_claim(name, w);
  return float_claim(name, w);
}

}  // namespace troupe::kernels
