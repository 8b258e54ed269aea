#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "kernels/moe_gate.h"
#include "kernels/sample.h"
#include "kernels/silu_mul.h"
#include "kernels/weight.h"
#include "runtime/split_mix.h"

/// Questions to the kernels, in words: what `known_answers.h` asks, and what the plain twins in
/// tests/kernels answer for the table.
namespace troupe::kernels {

/// Inputs of questions: from integers alone, so that they are the same everywhere.
class Integers {
 public:
  explicit Integers(std::uint64_t seed) : bits_(seed) {}

  std::uint64_t next() { return bits_.next(); }
  /// 24 bits, 23 of them behind the point, times 1 to 1/8; never near a subnormal number.
  float value() {
    const std::uint64_t bits = next();
    const auto whole = static_cast<std::int32_t>(bits >> 40) - (1 << 23) + 1;
    return static_cast<float>(whole) * (1.0f / (1 << 23)) / static_cast<float>(1u << (bits & 3));
  }
  std::vector<float> values(std::int64_t count) {
    std::vector<float> v(static_cast<std::size_t>(count));
    for (float& x : v) x = value();
    return v;
  }

 private:
  SplitMix bits_;
};

/// A matrix as a checkpoint stores it.
struct StoredQuestion {
  Codes codes = Codes::kBf16;
  std::int64_t n = 0, k = 0;
  std::int64_t block_n = 1, block_k = 0;  ///< block_k 0: no scales
  DType scale_dtype = DType::kF32;        ///< kF32, kBf16, kF8E8M0
  bool zeros = false;
};

/// Its bytes, made of integers: codes, then scales of 2^-4 to 2^3, then zeros.
struct StoredBytes {
  StoredBytes(const StoredQuestion& question, Integers& in);
  StoredMatrix matrix() const;

  StoredQuestion q;
  std::vector<std::byte> codes, scales;
  std::vector<std::uint8_t> zeros;
};

/// x [rows, groups, k], then W of each group, then the bias [groups, n] if there is one; `linear`.
struct LinearQuestion {
  StoredQuestion weight;
  std::int64_t rows = 0;
  PackOptions options = {};
  std::int64_t groups = 1;
  bool bias = false;
};

/// x [rows, hidden], then gate, up and down of each expert; expert e works on rows e, e + 1, ... to
/// the last, of the wire type.
struct MlpQuestion {
  StoredQuestion weight;  ///< n is the inner size, k the hidden one
  std::int64_t rows = 0, experts = 0;
  GatedAct act = {};
};

/// Keys [last + 1, kv_heads, k_dim], values [last + 1, kv_heads, v_dim] if they are not the first
/// of the keys, queries [rows, heads, k_dim], sinks [heads]. Row r is at position last - r.
struct AttentionQuestion {
  std::int64_t heads = 0, kv_heads = 0, k_dim = 0, v_dim = 0;
  bool shared = false, sinks = false;
  std::int64_t window = 0;
  std::int64_t rows = 0;
  std::int32_t last = 0;
  std::int32_t block_size = 0;  ///< blocks are handed out backwards

  static constexpr float kScale = 0.25f;
};

/// logits [rows, experts], then the bias [experts].
struct GateQuestion {
  GateConfig config;
  std::int64_t rows = 0;
};

enum class RowOp : std::uint8_t {
  kNorm,             ///< x, weight [cols]; epsilon 2^-20
  kRopeInterleaved,  ///< cos, sin [rows, cols / 2], x as two heads a row of cols; row r at r
  kRopeHalves,
  kEmbedding,      ///< table [rows + 2, cols] of bf16; ids are 1, 2, ...
  kSilu,           ///< gate, up
  kClampedSwiglu,  ///< gate, up; the limit is 1/2
  kCombine,        ///< y, then three outputs a row and their weights, of the wire type
  kResidual,       ///< x, y
  kToWire,         ///< x, to bf16 and back
  kJoin,           ///< four parts, then a bias [cols]
  kLogSoftmax,     ///< x; max, sum and log of the sum of each row
};

/// An op on rows [rows, cols].
struct RowsQuestion {
  RowOp op = RowOp::kNorm;
  std::int64_t rows = 0, cols = 0;

  static constexpr float kEpsilon = 1.0f / (1 << 20);
  static constexpr std::int64_t kOutputs = 3;  ///< of kCombine, a row
  static constexpr float kLimit = 0.5f;        ///< of kClampedSwiglu
};

/// logits [rows, vocab], sixteen times as large as values are, then for each row which token is
/// drawn. Of a call that has penalties every third token was used, its id modulo four times in the
/// output. One with a mask may draw about a quarter of the tokens, and those after a used one have
/// twice their id modulo five as a bias.
struct SampleQuestion {
  std::int64_t rows = 0, vocab = 0;
  SampleCall call;
};

/// Its inputs.
struct SampleInputs {
  SampleInputs(const SampleQuestion& question, Integers& in);

  std::vector<float> logits;
  std::vector<SampleCall> calls;
  std::vector<AdjustedToken> adjusted;
  std::vector<std::uint32_t> masks;
};

using Question = std::variant<LinearQuestion, MlpQuestion, AttentionQuestion, GateQuestion,
                              RowsQuestion, SampleQuestion>;

/// All of them; all numerics are asked the same.
std::span<const Question> known_questions();
/// The inputs of the i-th come from here.
inline Integers inputs_of(std::size_t question) { return Integers(0x7e57 + question); }
/// "linear (bf16, 3 rows, 45 x 70, 2 slices)".
std::string to_string(const Question& question);

}  // namespace troupe::kernels
