/// What is asked of each instruction: denormals and their boundary, ties, the largest, infinities,
/// NaN, both zeros, every code of the small formats, and numbers drawn by a seed.
#include <array>
#include <bit>

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
      {"from_e2m1", 1, kAll, of_codes(16)},
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
  };
  return all;
}

}  // namespace troupe::kernels
