/// What is asked of each instruction: denormals and their boundary, ties, the largest, infinities,
/// NaN, both zeros, every code of the small formats, and numbers drawn by a seed.
#include <array>
#include <bit>
#include <cmath>

#include "instructions.h"
#include "runtime/split_mix.h"

namespace troupe::kernels {
namespace {

constexpr std::uint32_t kCorners[] = {
    0x00000000, 0x80000000,                                      // zeros
    0x00000001, 0x007fffff, 0x807fffff,                          // denormals
    0x00800000, 0x80800000, 0x00800001, 0x00ffffff, 0x01000000,  // from 2^-126 on
    0x3f800000, 0xbf800000, 0x3f800001, 0x3f7fffff, 0x40490fdb, 0x3f808000,
    0x3f818000, 0x3f807fff, 0x3f808001,                          // ties of bf16, and beside them
    0x4b000001, 0x4b800001,                                      // above 2^23 and 2^24
    0x20000000, 0x5f000000,                                      // 2^-63, 2^63
    0x7f7fffff, 0xff7fffff, 0x7f7f8000, 0x7f7f7fff, 0x7f000000,  // the largest; of bf16
    0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0xffc01234, 0x7fffffff,
};

/// Those that three of are asked of fma.
constexpr std::uint32_t kFewCorners[] = {
    0x00000000, 0x80000000, 0x807fffff, 0x00800000, 0x3f800000, 0xbf800001,
    0x3f7fffff, 0x33800000, 0x7f7fffff, 0x7f800000, 0x7fc00000,
};

/// Products, quotients and sums at 2^-126: exact, above it, below it, and rounded up to it.
constexpr std::uint32_t kBoundary[][2] = {
    {0x1f800000, 0x20800000}, {0x1fffffff, 0x20000000}, {0x1fffffff, 0x20000001},
    {0x1f7fffff, 0x20800001}, {0x1f7ffffe, 0x20800001}, {0x1f800001, 0x20800000},
    {0x01000000, 0x00800000}, {0x01000000, 0x00800001}, {0x01000001, 0x00800000},
    {0x00800000, 0x40000000}, {0x00ffffff, 0x40000000}, {0x00fffffe, 0x40000000},
    {0x01000000, 0x40000000}, {0x00800000, 0x3f800001}, {0x00800001, 0x3f800001},
    {0x00800000, 0x80800001}, {0x3f800000, 0x7e800000}, {0x3f800000, 0x7e800001},
};

/// Where two roundings give another answer than one.
constexpr std::uint32_t kOnce[][3] = {
    {0x3f801000, 0x3f7ff000, 0xbf800000}, {0x3f800001, 0x3f800001, 0xbf800002},
    {0x3f800001, 0x3f800001, 0x33800000}, {0x3fffffff, 0x3fffffff, 0xc07ffffe},
    {0x1c800000, 0x1c800000, 0x00000000}, {0x1c800000, 0x1c800000, 0x00800000},
    {0x1c800000, 0x9c800000, 0x00800000}, {0x1f800000, 0x20800000, 0x80000001},
    {0x1fffffff, 0x20000000, 0x00000000}, {0x5f800000, 0x5f800000, 0xff7fffff},
    {0x7f7fffff, 0x3f800001, 0xff7fffff}, {0x7f800000, 0x00000000, 0x3f800000},
    {0x7f800000, 0x3f800000, 0xff800000}, {0x007fffff, 0x7f000000, 0x3f800000},
};

constexpr int kDrawn = 60;  // of each

class Draws {
 public:
  explicit Draws(std::uint64_t seed) : random_(seed) {}
  std::uint32_t any() { return static_cast<std::uint32_t>(random_.next() >> 32); }
  /// Of a size that sums meet: 2^-8 to 2^8.
  std::uint32_t plain() {
    const std::uint32_t bits = any();
    return (bits & 0x807fffffu) | (119u + (bits >> 23 & 15u)) << 23;
  }

 private:
  SplitMix random_;
};

std::vector<Asked> of_one() {
  std::vector<Asked> asked;
  for (const std::uint32_t a : kCorners) asked.push_back({{a}});
  Draws draws(1);
  for (int i = 0; i < kDrawn; ++i) asked.push_back({{draws.any()}});
  for (int i = 0; i < kDrawn; ++i) asked.push_back({{draws.plain()}});
  return asked;
}

std::vector<Asked> of_two() {
  std::vector<Asked> asked;
  for (const std::uint32_t a : kCorners)
    for (const std::uint32_t b : kCorners) asked.push_back({{a, b}});
  for (const auto& [a, b] : kBoundary) asked.push_back({{a, b}});
  for (const auto& [a, b] : kBoundary) asked.push_back({{b, a ^ 0x80000000u}});
  Draws draws(2);
  for (int i = 0; i < kDrawn; ++i) asked.push_back({{draws.any(), draws.any()}});
  for (int i = 0; i < kDrawn; ++i) asked.push_back({{draws.plain(), draws.plain()}});
  return asked;
}

std::vector<Asked> of_three() {
  std::vector<Asked> asked;
  for (const std::uint32_t a : kFewCorners)
    for (const std::uint32_t b : kFewCorners)
      for (const std::uint32_t c : kFewCorners) asked.push_back({{a, b, c}});
  for (const auto& [a, b, c] : kOnce) asked.push_back({{a, b, c}});
  for (const auto& [a, b] : kBoundary) asked.push_back({{a, b, 0x80000000u}});
  Draws draws(3);
  for (int i = 0; i < kDrawn; ++i) asked.push_back({{draws.any(), draws.any(), draws.any()}});
  for (int i = 0; i < kDrawn; ++i) asked.push_back({{draws.plain(), draws.plain(), draws.plain()}});
  return asked;
}

/// Around where exp and what is made of it change their form.
std::vector<Asked> of_exp() {
  std::vector<Asked> asked = of_one();
  for (const float x : {-87.0f, -86.99999f, -87.00001f, 88.0f, 88.72f, 88.73f, 89.0f, 89.1f,
                        0.34657359f, -0.34657359f, 0.34657362f, 127.5f, -127.5f, 1e-8f})
    asked.push_back({{std::bit_cast<std::uint32_t>(x)}});
  for (int i = -120; i < 120; ++i)
    asked.push_back({{std::bit_cast<std::uint32_t>(static_cast<float>(i) * 0.7431f)}});
  return asked;
}

/// No denormals: products and sums have none.
std::vector<Asked> of_pair() {
  std::vector<Asked> asked;
  for (const Asked& two : of_two()) {
    const auto denormal = [](std::uint32_t x) {
      return (x & 0x7f800000u) == 0 && (x & 0x007fffffu) != 0;
    };
    if (!denormal(two.words[0]) && !denormal(two.words[1])) asked.push_back(two);
  }
  return asked;
}

/// Ties, and what is beside them, of each e4m3.
std::vector<Asked> of_to_e4m3() {
  std::vector<Asked> asked = of_one();
  for (std::uint32_t exponent = 115; exponent < 138; ++exponent)
    for (std::uint32_t i = 0; i < 16; ++i)
      for (const int beside : {-1, 0, 1})
        asked.push_back({{((exponent << 23) + (i << 19) + static_cast<std::uint32_t>(beside)) |
                          (i % 3 == 0 ? 0x80000000u : 0u)}});
  return asked;
}

std::vector<Asked> of_codes(std::uint32_t count, std::uint32_t step = 1) {
  std::vector<Asked> asked;
  for (std::uint32_t i = 0; i < count; i += step) asked.push_back({{i}});
  return asked;
}

/// Codes of `bits` bits, one beside another in the lower bits of a word, and which one is meant.
std::vector<Asked> of_pairs(int bits, std::uint32_t step) {
  std::vector<Asked> asked;
  const std::uint32_t codes = 1u << bits;
  for (std::uint32_t code = 0; code < codes; code += step) {
    const std::uint32_t other = (code * 37 + 11) % codes;
    const std::uint32_t beyond = bits < 16 ? 0x5ac30000u : 0;
    asked.push_back({{beyond | code | other << bits, 0}});
    asked.push_back({{beyond | other | code << bits, 1}});
  }
  return asked;
}

std::vector<Asked> of_f16() {
  std::vector<Asked> asked = of_codes(65536, 251);
  for (const std::uint32_t x : {0x0001u, 0x03ffu, 0x0400u, 0x7bffu, 0x7c00u, 0x7c01u, 0x7e00u,
                                0x8000u, 0x8001u, 0xfbffu, 0xfc00u, 0xffffu})
    asked.push_back({{x}});
  return asked;
}

std::vector<Asked> of_int4() {
  std::vector<Asked> asked;
  for (std::uint32_t code = 0; code < 16; ++code)
    for (const std::uint32_t zero : {0u, 7u, 8u, 15u})
      for (const std::uint32_t scale : {0x3f800000u, 0x3dcccccdu, 0x00800000u, 0xbf9e0652u})
        asked.push_back({{code, zero, scale}});
  return asked;
}

std::vector<Asked> of_shift() {
  std::vector<Asked> asked;
  for (std::uint32_t by = 0; by < 64; ++by) asked.push_back({{0x89abcdef, 0x01234567, by}});
  return asked;
}

/// Integers that are divided and multiplied; no zero, and no quotient beyond 32 bits.
std::vector<Asked> of_integers() {
  std::vector<Asked> asked;
  constexpr std::uint32_t kNumbers[] = {0,          1,          2,          16,         63,
                                        64,         1023,       4097,       0x7fffffff, 0xffffffff,
                                        0xfffffff0, 0x80000001, 0x00010001, 131071};
  for (const std::uint32_t a : kNumbers)
    for (const std::uint32_t b : kNumbers)
      if (b != 0) asked.push_back({{a, b}});
  return asked;
}

std::vector<Asked> of_lanes() {
  std::vector<Asked> asked;
  for (const std::uint32_t apart : {1u, 2u, 4u, 8u, 16u, 31u})
    for (std::uint32_t lane = 0; lane < 32; ++lane)
      asked.push_back({{0x7fc00000u + lane, lane ^ apart}});
  for (std::uint32_t lane = 0; lane < 32; ++lane) asked.push_back({{lane * 3, 7}});
  return asked;
}

std::vector<Asked> of_quads() {
  std::vector<Asked> asked;
  for (std::uint32_t i = 0; i < 64; ++i) asked.push_back({{i, 0x11111111u * i, ~i, 0}});
  return asked;
}

/// All 128 numbers of each set: a warp for each of the four that a lane has.
void add_sets(std::vector<Asked>& asked, MmaKind kind, std::uint32_t seeds) {
  for (std::uint32_t seed = 0; seed < seeds; ++seed)
    for (std::uint32_t i = 0; i < 4; ++i)
      for (std::uint32_t lane = 0; lane < 32; ++lane)
        asked.push_back({{mma_set(kind, seed), i, lane}});
}

std::vector<Asked> of_mma() {
  std::vector<Asked> asked;
  for (const MmaKind kind :
       {MmaKind::kIntegers, MmaKind::kCancelled, MmaKind::kNoB, MmaKind::kNoA, MmaKind::kInfinite})
    add_sets(asked, kind, 2);
  add_sets(asked, MmaKind::kOneK, 16);
  add_sets(asked, MmaKind::kDrawn, 8);
  return asked;
}

std::vector<Asked> of_mma(MmaKind kind, std::uint32_t seeds) {
  std::vector<Asked> asked;
  add_sets(asked, kind, seeds);
  return asked;
}

std::vector<Asked> of_matrices() {
  std::vector<Asked> asked;
  for (const std::uint32_t set : {1u, 2u})
    for (std::uint32_t word = 0; word < 4; ++word)
      for (std::uint32_t lane = 0; lane < 32; ++lane) asked.push_back({{set, word, lane}});
  return asked;
}

std::vector<Asked> of_any() {
  std::vector<Asked> asked;
  for (const std::uint32_t says : {0u, 1u, 0x80000000u, 0x00010000u, 0xffffffffu})
    for (std::uint32_t lane = 0; lane < 32; ++lane) asked.push_back({{says, lane}});
  return asked;
}

std::vector<Asked> of_copies() {
  std::vector<Asked> asked;
  for (std::uint32_t i = 0; i < 128; ++i)
    asked.push_back({{mixed(3, i, 0), mixed(3, i, 1), i / 32 % 2, i}});
  return asked;
}

Asked of_doubles(double x, double y = 0) {
  const auto a = std::bit_cast<std::uint64_t>(x), b = std::bit_cast<std::uint64_t>(y);
  return {{static_cast<std::uint32_t>(a >> 32), static_cast<std::uint32_t>(a),
           static_cast<std::uint32_t>(b >> 32), static_cast<std::uint32_t>(b)}};
}

/// Of a float64 there is no mode in which denormals are zeros on a GPU: sampling has none, and none
/// is asked for. Nor are NaNs, whose bits are no part of the definition.
constexpr double kDoubles[] = {1.0,     -1.0,          3.0,      0x1.fffffffffffffp0,
                               0x1p-30, 0x1.0000001p0, 1e300,    -0x1.8p-200,
                               0x1p53,  0x1.8p1,       0.1,      708.25,
                               -745.5,  0x1p-500,      65536.25, 1.4142135623730951};

/// No denormal quotients: a GPU has them, a host under runtime/float_mode.h does not, and sampling
/// divides nothing so small.
std::vector<Asked> of_two_doubles() {
  std::vector<Asked> asked;
  for (const double x : kDoubles)
    for (const double y : kDoubles)
      if (x == 0 || y == 0 || std::ilogb(x) - std::ilogb(y) > -1022)
        asked.push_back(of_doubles(x, y));
  Draws draws(4);
  for (int i = 0; i < 4 * kDrawn; ++i) {
    Asked two = {{draws.any(), draws.any(), draws.any(), draws.any()}};
    for (const int word : {0, 2})  // of 2^-8 to 2^7
      two.words[word] = (two.words[word] & 0x800fffffu) | (1015u + (two.words[word] >> 20 & 15u))
                                                              << 20;
    asked.push_back(two);
  }
  return asked;
}

std::vector<Asked> of_exp_64() {
  std::vector<Asked> asked;
  for (const double x : {0.0, -0x1p-60, 1e-9, 0.5, -0.5, 0.34657359027997264, -0.34657359027997264,
                         709.0, 709.78, 711.0, -708.0, -708.39641853226397, -708.397, -746.0, -1e9})
    asked.push_back(of_doubles(x));
  for (int i = -500; i < 100; i += 3) asked.push_back(of_doubles(i * 0.74310000000000009));
  return asked;
}

std::vector<Asked> of_log_64() {
  std::vector<Asked> asked;
  for (const double x :
       {0.0, 1.0, 2.0, 0.5, 1.4142135623730951, 1.4142135623730954, 0x1p-1022,
        0x1.fffffffffffffp1023, 0x1.fffffffffffffp-1, 0x1.0000000000001p0, 128256.0})
    asked.push_back(of_doubles(x));
  for (const Asked& two : of_two_doubles()) {
    asked.push_back(two);
    asked.back().words[0] &= 0x7fffffffu;
    asked.back().words[2] = asked.back().words[3] = 0;
  }
  return asked;
}

std::vector<Asked> of_widen() {
  std::vector<Asked> asked;
  for (const Asked& one : of_one()) {
    const std::uint32_t exponent = one.words[0] >> 23 & 255u, fraction = one.words[0] & 0x7fffffu;
    const bool denormal = exponent == 0 && fraction != 0, nan = exponent == 255 && fraction != 0;
    if (!denormal && !nan) asked.push_back(one);
  }
  return asked;
}

/// Ties of float32, and what is beside them; the largest, and the boundary of denormals.
std::vector<Asked> of_narrow() {
  std::vector<Asked> asked;
  for (const double x : kDoubles) asked.push_back(of_doubles(x));
  for (const double x : {0.0, 0x1.000001p0, 0x1.000003p0, 0x1.0000010000001p0, 0x1.000000fffffffp0,
                         0x1.fffffep127, 0x1.ffffffp127, 0x1.fffffefffffffp127, 0x1p-126,
                         0x1.fffffffp-127, 0x1p-127, 0x1p-160, -0x1.fffffep-127, -0x1p128})
    asked.push_back(of_doubles(x));
  for (const Asked& two : of_two_doubles()) asked.push_back({{two.words[2], two.words[3]}});
  return asked;
}

}  // namespace

const std::vector<Instruction>& instructions() {
  using enum AnswerBits;
  static const std::vector<Instruction> all = {
      {"add", 2, kFloat, of_two()},
      {"subtract", 2, kFloat, of_two()},
      {"multiply", 2, kFloat, of_two()},
      {"divide", 2, kFloat, of_two()},
      {"reciprocal", 1, kFloat, of_one()},
      {"fma", 3, kFloat, of_three()},
      {"root", 1, kFloat, of_one()},
      {"larger", 2, kFloat, of_two()},
      {"exp", 1, kFloat, of_exp()},
      {"sigmoid", 1, kFloat, of_exp()},
      {"round_pair", 2, kBf16Pair, of_pair()},
      {"to_bf16", 1, kAll, of_one()},
      {"low_half", 1, kAll, of_one()},
      {"high_half", 1, kAll, of_one()},
      {"to_e4m3", 1, kAll, of_to_e4m3()},
      {"from_e4m3", 1, kFloat, of_codes(256)},
      {"e4m3_pair", 2, kFloat, of_pairs(8, 1)},
      {"e2m1_pair", 2, kFloat, of_pairs(4, 1)},
      {"widen_halves", 2, kFloat, of_pairs(16, 251)},
      {"from_e8m0", 1, kFloat, of_codes(256)},
      {"from_f16", 1, kFloat, of_f16()},
      {"from_int4", 3, kFloat, of_int4()},
      {"to_float", 1, kAll, of_one()},
      {"shift_right", 3, kAll, of_shift()},
      {"quotient", 2, kAll, of_integers()},
      {"remainder", 2, kAll, of_integers()},
      {"wide_product", 2, kAll, of_integers()},
      {"shuffle", 2, kAll, of_lanes()},
      {"load_quad", 3, kAll, of_quads()},
      {"mma", 3, kFloat, of_mma()},
      {"mma_alike", 3, kAll, of_mma(MmaKind::kAlike, 4)},
      {"mma_apart", 3, kAll, of_mma(MmaKind::kApart, 16)},
      {"ldmatrix", 3, kAll, of_matrices()},
      {"ldmatrix_trans", 3, kAll, of_matrices()},
      {"any", 2, kAll, of_any()},
      {"copy_later", 4, kAll, of_copies()},
      {"add_f64_high", 4, kAll, of_two_doubles()},
      {"add_f64_low", 4, kAll, of_two_doubles()},
      {"multiply_f64_high", 4, kAll, of_two_doubles()},
      {"multiply_f64_low", 4, kAll, of_two_doubles()},
      {"divide_f64_high", 4, kAll, of_two_doubles()},
      {"divide_f64_low", 4, kAll, of_two_doubles()},
      {"exp_f64_high", 2, kAll, of_exp_64()},
      {"exp_f64_low", 2, kAll, of_exp_64()},
      {"log_f64_high", 2, kAll, of_log_64()},
      {"log_f64_low", 2, kAll, of_log_64()},
      {"widen_high", 1, kAll, of_widen()},
      {"widen_low", 1, kAll, of_widen()},
      {"narrow", 2, kFloat, of_narrow()},
  };
  return all;
}

}  // namespace troupe::kernels
