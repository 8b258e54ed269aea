#include "model/gguf/block_format.h"

#include <array>
#include <cstring>

#include "runtime/bf16.h"

namespace troupe {
namespace {

constexpr int kSmall = 32;   // numbers in a block of the old formats
constexpr int kLarge = 256;  // and of the "K" ones

float half(const std::uint8_t* at) {
  return f16_to_float(static_cast<std::uint16_t>(at[0] | at[1] << 8));
}
std::uint32_t word(const std::uint8_t* at) {
  return at[0] | at[1] << 8 | at[2] << 16 | static_cast<std::uint32_t>(at[3]) << 24;
}
int low(std::uint8_t byte) { return byte & 15; }
int high(std::uint8_t byte) { return byte >> 4; }
/// 16 if the bit is set.
int fifth(std::uint32_t bits, int bit) { return static_cast<int>(bits >> bit & 1) << 4; }

// In the old formats the low halves of the bytes are the first half of the numbers.

void expand_q4_0(const std::uint8_t* b, float* out) {
  const float scale = half(b);
  for (int j = 0; j < kSmall / 2; ++j) {
    out[j] = static_cast<float>(low(b[2 + j]) - 8) * scale;
    out[j + kSmall / 2] = static_cast<float>(high(b[2 + j]) - 8) * scale;
  }
}

void expand_q4_1(const std::uint8_t* b, float* out) {
  const float scale = half(b), least = half(b + 2);
  for (int j = 0; j < kSmall / 2; ++j) {
    out[j] = static_cast<float>(low(b[4 + j])) * scale + least;
    out[j + kSmall / 2] = static_cast<float>(high(b[4 + j])) * scale + least;
  }
}

void expand_q5_0(const std::uint8_t* b, float* out) {
  const float scale = half(b);
  const std::uint32_t fifths = word(b + 2);
  for (int j = 0; j < kSmall / 2; ++j) {
    const int first = low(b[6 + j]) + fifth(fifths, j);
    const int second = high(b[6 + j]) + fifth(fifths, j + 16);
    out[j] = static_cast<float>(first - 16) * scale;
    out[j + kSmall / 2] = static_cast<float>(second - 16) * scale;
  }
}

void expand_q5_1(const std::uint8_t* b, float* out) {
  const float scale = half(b), least = half(b + 2);
  const std::uint32_t fifths = word(b + 4);
  for (int j = 0; j < kSmall / 2; ++j) {
    const int first = low(b[8 + j]) + fifth(fifths, j);
    const int second = high(b[8 + j]) + fifth(fifths, j + 16);
    out[j] = static_cast<float>(first) * scale + least;
    out[j + kSmall / 2] = static_cast<float>(second) * scale + least;
  }
}

void expand_q8_0(const std::uint8_t* b, float* out) {
  const float scale = half(b);
  for (int j = 0; j < kSmall; ++j)
    out[j] = static_cast<float>(static_cast<std::int8_t>(b[2 + j])) * scale;
}

/// Scale and least value of a sub-block of 32: eight of each, six bits wide, in 12 bytes.
struct SubBlock {
  float scale, least;
};
SubBlock sub_block(const std::uint8_t* b, int i) {
  const std::uint8_t* s = b + 4;
  const int scale = i < 4 ? s[i] & 63 : low(s[i + 4]) | (s[i - 4] >> 6) << 4;
  const int least = i < 4 ? s[i + 4] & 63 : high(s[i + 4]) | (s[i] >> 6) << 4;
  return {half(b) * static_cast<float>(scale), half(b + 2) * static_cast<float>(least)};
}

void expand_q4_k(const std::uint8_t* b, float* out) {
  const std::uint8_t* q = b + 16;
  for (int i = 0; i < 8; i += 2, q += 32, out += 64) {
    const SubBlock one = sub_block(b, i), two = sub_block(b, i + 1);
    for (int j = 0; j < 32; ++j) {
      out[j] = one.scale * static_cast<float>(low(q[j])) - one.least;
      out[j + 32] = two.scale * static_cast<float>(high(q[j])) - two.least;
    }
  }
}

void expand_q5_k(const std::uint8_t* b, float* out) {
  const std::uint8_t* fifths = b + 16;
  const std::uint8_t* q = b + 48;
  for (int i = 0; i < 8; i += 2, q += 32, out += 64) {
    const SubBlock one = sub_block(b, i), two = sub_block(b, i + 1);
    for (int j = 0; j < 32; ++j) {
      const int first = low(q[j]) + fifth(fifths[j], i);
      const int second = high(q[j]) + fifth(fifths[j], i + 1);
      out[j] = one.scale * static_cast<float>(first) - one.least;
      out[j + 32] = two.scale * static_cast<float>(second) - two.least;
    }
  }
}

void expand_q6_k(const std::uint8_t* b, float* out) {
  const std::uint8_t *lows = b, *highs = b + 128, *scales = b + 192;
  const float scale = half(b + 208);
  for (int i = 0; i < kLarge; i += 128, lows += 64, highs += 32, scales += 8, out += 128)
    for (int quarter = 0; quarter < 4; ++quarter)
      for (int j = 0; j < 32; ++j) {
        const std::uint8_t pair = lows[j + quarter % 2 * 32];
        const int bits = (quarter < 2 ? low(pair) : high(pair)) | (highs[j] >> 2 * quarter & 3)
                                                                      << 4;
        const auto own = static_cast<std::int8_t>(scales[2 * quarter + j / 16]);
        out[quarter * 32 + j] = scale * static_cast<float>(own) * static_cast<float>(bits - 32);
      }
}

constexpr BlockFormat kQ4_0 = {"Q4_0", kSmall, 18, expand_q4_0};
constexpr BlockFormat kQ4_1 = {"Q4_1", kSmall, 20, expand_q4_1};
constexpr BlockFormat kQ5_0 = {"Q5_0", kSmall, 22, expand_q5_0};
constexpr BlockFormat kQ5_1 = {"Q5_1", kSmall, 24, expand_q5_1};
constexpr BlockFormat kQ8_0 = {"Q8_0", kSmall, 34, expand_q8_0};
constexpr BlockFormat kQ4_K = {"Q4_K", kLarge, 144, expand_q4_k};
constexpr BlockFormat kQ5_K = {"Q5_K", kLarge, 176, expand_q5_k};
constexpr BlockFormat kQ6_K = {"Q6_K", kLarge, 210, expand_q6_k};

constexpr GgufType kTypes[] = {
    {0, DType::kF32, nullptr}, {1, DType::kF16, nullptr}, {30, DType::kBf16, nullptr},
    {2, DType::kF32, &kQ4_0},  {3, DType::kF32, &kQ4_1},  {6, DType::kF32, &kQ5_0},
    {7, DType::kF32, &kQ5_1},  {8, DType::kF32, &kQ8_0},  {12, DType::kF32, &kQ4_K},
    {13, DType::kF32, &kQ5_K}, {14, DType::kF32, &kQ6_K},
};

/// ggml's numbers of what is not read here.
constexpr std::array<std::string_view, 41> kOtherNames = {
    "",        "",      "",       "",      "",      "",       "",     "",        "",
    "Q8_1",    "Q2_K",  "Q3_K",   "",      "",      "",       "Q8_K", "IQ2_XXS", "IQ2_XS",
    "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS", "I8",   "I16",     "I32",
    "I64",     "F64",   "IQ1_M",  "",      "",      "",       "",     "TQ1_0",   "TQ2_0",
    "",        "",      "",       "MXFP4", "NVFP4"};

std::string_view name_of(const GgufType& type) {
  return type.blocks ? type.blocks->name : to_string(type.dtype);
}

}  // namespace

const GgufType* gguf_type(std::uint32_t id) {
  for (const GgufType& type : kTypes)
    if (type.id == id) return &type;
  return nullptr;
}

std::string gguf_type_name(std::uint32_t id) {
  if (const GgufType* known = gguf_type(id)) return std::string(name_of(*known));
  if (id < kOtherNames.size() && !kOtherNames[id].empty()) return std::string(kOtherNames[id]);
  return "type " + std::to_string(id);
}

std::string gguf_types_in_words() {
  std::string words;
  for (const GgufType& type : kTypes)
    words += (words.empty() ? "" : ", ") + std::string(name_of(type));
  return words;
}

}  // namespace troupe
