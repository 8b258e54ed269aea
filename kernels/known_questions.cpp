#include "kernels/known_questions.h"

#include <bit>
#include <cstring>

namespace troupe::kernels {
namespace {

using enum Codes;
constexpr PackOptions kFull{1, true};

constexpr StoredQuestion bf16(std::int64_t n, std::int64_t k) { return {kBf16, n, k}; }

constexpr GateConfig gate(GateScoring scoring, GateMethod method, int experts, int groups) {
  GateConfig c;
  c.scoring = scoring;
  c.method = method;
  c.experts = experts;
  c.n_group = groups;
  c.topk_group = (groups + 1) / 2;
  c.top_k = 6;
  c.norm_topk_prob = scoring == GateScoring::kSigmoid;
  c.routed_scaling_factor = 2.5f;
  return c;
}

constexpr SampleCall sampled(float temperature, std::int32_t top_k, float top_p, float min_p,
                             bool penalties, bool masked = false) {
  SampleCall c;
  c.top = 3;
  c.temperature = temperature;
  c.top_k = top_k;
  c.top_p = top_p;
  c.min_p = min_p;
  c.mask = masked ? 0 : -1;
  if (penalties) {
    c.repetition_penalty = 1.25f;
    c.presence_penalty = 0.5f;
    c.frequency_penalty = 0.25f;
  }
  return c;
}

/// Rows as in decoding, as in a prompt, and counts that no loop's width divides.
const Question kQuestions[] = {
    LinearQuestion{bf16(64, 96), 1},
    LinearQuestion{bf16(45, 71), 3},
    LinearQuestion{bf16(64, 128), 33},
    LinearQuestion{bf16(33, 70), 13},
    LinearQuestion{bf16(32, 256), 1, {8}},
    LinearQuestion{bf16(40, 136), 17, {8}},
    LinearQuestion{bf16(45, 70), 3, {2}, 1, true},
    LinearQuestion{bf16(64, 64), 1, kFull},
    LinearQuestion{bf16(33, 71), 19, kFull},
    LinearQuestion{{kF32, 40, 71}, 33},
    LinearQuestion{{kF32, 45, 70}, 18, kFull},
    LinearQuestion{{kF16, 40, 64}, 5},
    LinearQuestion{{kFp8, 160, 256, 128, 128}, 2},
    LinearQuestion{{kFp8, 64, 96, 1, 96, DType::kBf16}, 17, {}, 1, true},
    LinearQuestion{{kInt4, 64, 128, 1, 32, DType::kBf16}, 1},
    LinearQuestion{{kInt4, 40, 256, 1, 128, DType::kBf16, true}, 7, {4}},
    LinearQuestion{{kFp4, 64, 96, 1, 32, DType::kF8E8M0}, 3},
    LinearQuestion{bf16(40, 48), 2, {}, 3},
    LinearQuestion{bf16(48, 40), 3, kFull, 3},
    LinearQuestion{{kFp8, 64, 96, 64, 1, DType::kBf16}, 5, kFull},
    LinearQuestion{{kInt4, 96, 64, 32, 1, DType::kBf16}, 1, kFull},
    LinearQuestion{{kInt4, 64, 96, 1, 32}, 1},
    LinearQuestion{{kInt4, 96, 64, 32, 1, DType::kF16, true}, 5, kFull},
    LinearQuestion{{kFp8, 64, 96, 64, 1, DType::kBf16}, 1, kFull},
    MlpQuestion{bf16(48, 64), 1, 1},
    MlpQuestion{bf16(70, 96), 20, 2},
    MlpQuestion{{kFp8, 64, 128, 32, 64}, 3, 2},
    MlpQuestion{{kInt4, 64, 96, 1, 32, DType::kBf16}, 2, 3},
    MlpQuestion{
        {kFp4, 64, 64, 1, 32, DType::kF8E8M0}, 5, 2, {GatedAct::Kind::kClampedSwiglu, 0.5f}},
    AttentionQuestion{4, 1, 80, 64, true, false, 0, 1, 130, 16},
    AttentionQuestion{5, 1, 54, 44, true, false, 0, 3, 300, 4},
    AttentionQuestion{17, 1, 192, 128, true, false, 0, 2, 63, 16},
    AttentionQuestion{8, 2, 64, 64, false, false, 0, 3, 259, 16},
    AttentionQuestion{4, 4, 40, 24, false, true, 128, 2, 400, 7},
    AttentionQuestion{2, 1, 32, 32, true, false, 0, 2, 1290, 64},
    GateQuestion{gate(GateScoring::kSigmoid, GateMethod::kNoauxTc, 64, 8), 3},
    GateQuestion{gate(GateScoring::kSoftmax, GateMethod::kGreedy, 33, 1), 3},
    GateQuestion{gate(GateScoring::kSoftmax, GateMethod::kGroupLimitedGreedy, 40, 4), 17},
    GateQuestion{gate(GateScoring::kSoftmaxChosen, GateMethod::kGreedy, 32, 1), 3},
    RowsQuestion{RowOp::kNorm, 1, 512},
    RowsQuestion{RowOp::kNorm, 3, 70},
    RowsQuestion{RowOp::kRopeInterleaved, 3, 64},
    RowsQuestion{RowOp::kRopeHalves, 3, 34},
    RowsQuestion{RowOp::kEmbedding, 3, 70},
    RowsQuestion{RowOp::kSilu, 3, 133},
    RowsQuestion{RowOp::kClampedSwiglu, 3, 133},
    RowsQuestion{RowOp::kCombine, 3, 70},
    RowsQuestion{RowOp::kResidual, 3, 133},
    RowsQuestion{RowOp::kToWire, 3, 133},
    RowsQuestion{RowOp::kLogSoftmax, 1, 1003},
    RowsQuestion{RowOp::kJoin, 3, 300},
    SampleQuestion{3, 517, sampled(0, 0, 1, 0, false)},
    SampleQuestion{7, 1030, sampled(1, 0, 1, 0, true)},
    SampleQuestion{7, 517, sampled(1.5f, 40, 0.9f, 0.01f, true)},
    SampleQuestion{7, 517, sampled(1, 0, 0.9f, 0, true, true)},
};

struct Words {
  std::string rows(std::int64_t n) const { return std::to_string(n) + (n == 1 ? " row" : " rows"); }
  std::string weight(const StoredQuestion& q) const {
    static constexpr const char* kNames[] = {"f32", "bf16", "f16", "fp8", "int4", "fp4"};
    return std::string(kNames[static_cast<std::size_t>(q.codes)]) + " " + std::to_string(q.n) +
           " x " + std::to_string(q.k);
  }

  std::string operator()(const LinearQuestion& q) const {
    return "linear (" + rows(q.rows) + ", " + weight(q.weight) +
           (q.groups > 1 ? ", " + std::to_string(q.groups) + " groups" : "") +
           (q.options.slices > 1 ? ", " + std::to_string(q.options.slices) + " slices" : "") +
           (q.bias ? ", bias" : "") + (q.options.full_precision ? ", full precision)" : ")");
  }
  std::string operator()(const MlpQuestion& q) const {
    return "expert_mlp (" + rows(q.rows) + ", " + weight(q.weight) + ")";
  }
  std::string operator()(const AttentionQuestion& q) const {
    return "attention (" + rows(q.rows) + ", " + std::to_string(q.heads) + " heads on " +
           std::to_string(q.kv_heads) + ", " + std::to_string(q.last + 1) + " positions)";
  }
  std::string operator()(const GateQuestion& q) const {
    return "moe_gate (" + rows(q.rows) + ", " + std::to_string(q.config.experts) + " experts)";
  }
  std::string operator()(const RowsQuestion& q) const {
    static constexpr const char* kNames[] = {
        "rms_norm", "rope pairs",   "rope halves", "embedding", "silu_mul",   "clamped swiglu",
        "combine",  "residual_add", "to_wire",     "join",      "log_softmax"};
    return std::string(kNames[static_cast<std::size_t>(q.op)]) + " (" + rows(q.rows) + " of " +
           std::to_string(q.cols) + ")";
  }
  std::string operator()(const SampleQuestion& q) const {
    return "sample (" + rows(q.rows) + " of " + std::to_string(q.vocab) +
           (q.call.top_k > 0 ? ", the most likely" : "") +
           (q.call.mask >= 0 ? ", some of them" : "") + ")";
  }
};

template <class T>
void put(std::vector<std::byte>& to, T value) {
  const std::size_t at = to.size();
  to.resize(at + sizeof value);
  std::memcpy(to.data() + at, &value, sizeof value);
}

/// A power of two from 2^-4 to 2^3.
void put_scale(std::vector<std::byte>& to, DType dtype, std::uint32_t which) {
  const std::uint32_t exponent = 123 + which % 8;
  if (dtype == DType::kF8E8M0) return put(to, static_cast<std::uint8_t>(exponent));
  if (dtype == DType::kBf16) return put(to, static_cast<std::uint16_t>(exponent << 7 | 0x25));
  put(to, std::bit_cast<float>(exponent << 23 | 0x123456));
}

}  // namespace

SampleInputs::SampleInputs(const SampleQuestion& q, Integers& in)
    : logits(in.values(q.rows * q.vocab)) {
  for (float& x : logits) x *= 16;
  const bool penalties = q.call.repetition_penalty != 1;
  for (TokenId token = 0; penalties && token < q.vocab; token += 3)
    adjusted.push_back({token, token % 4});
  if (q.call.mask >= 0) {
    for (TokenId token = 1; token < q.vocab; token += 3)
      adjusted.push_back({token, -1, static_cast<float>(token % 5) * 2});
    for (std::int64_t word = 0; word < mask_words(q.vocab); ++word)
      masks.push_back(static_cast<std::uint32_t>(in.next() & in.next() >> 32));
  }
  for (std::int64_t row = 0; row < q.rows; ++row) {
    SampleCall call = q.call;
    call.row = row;
    call.adjusted = static_cast<std::int32_t>(adjusted.size());
    call.uniform = static_cast<double>(in.next() >> 11) * 0x1p-53;
    calls.push_back(call);
  }
}

StoredBytes::StoredBytes(const StoredQuestion& question, Integers& in) : q(question) {
  const std::int64_t count = q.n * q.k;
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = in.value();
    const auto bits = std::bit_cast<std::uint32_t>(value);
    switch (q.codes) {
      case Codes::kF32:
        put(codes, value);
        break;
      case Codes::kBf16:
        put(codes, static_cast<std::uint16_t>(bits >> 16));
        break;
      case Codes::kF16:
        put(codes, static_cast<std::uint16_t>((bits >> 9) & 0xbbff));
        break;
      case Codes::kFp8: {
        const auto code = static_cast<std::uint8_t>(bits >> 11);
        put(codes, static_cast<std::uint8_t>((code & 0x7f) == 0x7f ? code ^ 1 : code));
        break;
      }
      default:
        if (i % 2 == 0) put(codes, static_cast<std::uint8_t>(bits >> 10));
    }
  }
  if (q.block_k == 0) return;
  const std::int64_t blocks =
      ((q.n + q.block_n - 1) / q.block_n) * ((q.k + q.block_k - 1) / q.block_k);
  for (std::int64_t i = 0; i < blocks; ++i)
    put_scale(scales, q.scale_dtype, static_cast<std::uint32_t>(in.next() >> 32));
  for (std::int64_t i = 0; q.zeros && i < blocks; ++i)
    zeros.push_back(static_cast<std::uint8_t>(in.next() >> 60));
}

StoredMatrix StoredBytes::matrix() const {
  StoredMatrix m{q.codes, q.n, q.k, {}};
  if (q.block_k == 0) return m;
  m.scales = {scales.data(), q.scale_dtype, q.block_n, q.block_k, q.zeros ? zeros.data() : nullptr};
  return m;
}

std::span<const Question> known_questions() { return kQuestions; }

std::string to_string(const Question& question) { return std::visit(Words{}, question); }

}  // namespace troupe::kernels
