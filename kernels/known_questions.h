#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "kernels/moe_gate.h"
#include "kernels/packed_matrix.h"

/// Questions to the kernels, in words: what `known_answers.h` asks, and what the plain twins in
/// tests/kernels answer for the table.
namespace troupe::kernels {

/// Inputs of questions: from integers alone, so that they are the same everywhere.
class Integers {
 public:
  explicit Integers(std::uint64_t seed) : state_(seed) {}

  /// splitmix64
  std::uint64_t next() {
    std::uint64_t x = state_ += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
  }
  /// 24 bits, 23 of them behind the point, times 1 to 1/8; never near a subnormal number.
  float value() {
    const std::uint64_t bits = next();
    const auto whole = static_cast<std::int32_t>(bits >> 40) - (1 << 23) + 1;
    return static_cast<float>(whole) * (1.0f / (1 << 23)) /
           static_cast<float>(1u << (bits & 3));
  }
  std::vector<float> values(std::size_t count) {
    std::vector<float> v(count);
    for (float& x : v) x = value();
    return v;
  }
  /// Values that `type` holds exactly.
  std::vector<float> weights(WeightType type, std::size_t count);

 private:
  std::uint64_t state_;
};

/// What is stored of values that the type holds exactly.
std::vector<std::byte> stored(WeightType type, const std::vector<float>& values);

/// x [rows, heads, k], then W [heads, n, k]; y [rows, heads, n]. One head: `linear`.
struct LinearQuestion {
  WeightType type = WeightType::kBf16;
  std::int64_t n = 0, k = 0;
  std::size_t rows = 0;
  PackOptions options = {};
  std::size_t heads = 1;
};

/// x [rows, hidden], then gate, up [inner, hidden] and down [hidden, inner] of each expert. Expert
/// e works on rows e, e + 1, ... to the last.
struct FfnQuestion {
  WeightType type = WeightType::kBf16;
  std::int64_t hidden = 0, inner = 0;
  std::size_t rows = 0, experts = 0;
};

/// latent [last + 1, kv_lora], rotary [last + 1, rope] of the context, then the queries' latent
/// [rows, heads, kv_lora] and rotary part [rows, heads, rope]. Row r is at position last - r.
struct AttentionQuestion {
  std::size_t kv_lora = 0, rope = 0, heads = 0, rows = 0;
  std::int32_t last = 0;
  std::int32_t block_size = 0;  ///< blocks are handed out backwards

  static constexpr float kScale = 0.25f;
};

/// logits [rows, experts], then the bias [experts].
struct GateQuestion {
  GateConfig config;
  std::size_t rows = 0;
};

enum class RowOp : std::uint8_t {
  kNorm,             ///< x, weight [cols]; epsilon 2^-20
  kRopeInterleaved,  ///< cos, sin [rows, cols / 2], x as two heads a row of cols; row r at r
  kRopeHalves,
  kEmbeddingBf16,    ///< table [rows + 2, cols]; ids are 1, 2, ...
  kEmbeddingF32,
  kSilu,             ///< gate, up
  kCombine,          ///< y, then three outputs a row and their weights, of the family's wire type
  kResidual,         ///< x, y
  kToWire,           ///< x, to bf16 and back
  kLogSoftmax,       ///< x; max, sum and log of the sum of each row
};

/// An op on rows [rows, cols].
struct RowsQuestion {
  RowOp op = RowOp::kNorm;
  std::size_t rows = 0, cols = 0;

  static constexpr float kEpsilon = 1.0f / (1 << 20);
  static constexpr std::size_t kOutputs = 3;  ///< of kCombine, a row
};

using Question =
    std::variant<LinearQuestion, FfnQuestion, AttentionQuestion, GateQuestion, RowsQuestion>;

/// All of them; every family is asked the same.
std::span<const Question> known_questions();
/// The inputs of the i-th come from here.
inline Integers inputs_of(std::size_t question) { return Integers(0x7e57 + question); }
/// "linear (bf16, 3 rows, 45 x 70, 2 slices)".
std::string to_string(const Question& question);

}  // namespace troupe::kernels
