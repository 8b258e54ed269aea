#include "kernels/known_questions.h"

#include <bit>
#include <cstring>

#include "runtime/bf16.h"

namespace troupe::kernels {
namespace {

constexpr auto kBf16 = WeightType::kBf16;
constexpr auto kF32 = WeightType::kF32;
constexpr PackOptions kFull{1, true};

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

/// Rows as in decoding, as in a prompt, and counts that no loop's width divides.
const Question kQuestions[] = {
    LinearQuestion{kBf16, 64, 96, 1},
    LinearQuestion{kBf16, 45, 71, 3},
    LinearQuestion{kBf16, 64, 128, 33},
    LinearQuestion{kBf16, 33, 70, 13},
    LinearQuestion{kBf16, 32, 256, 1, {8}},
    LinearQuestion{kBf16, 40, 136, 17, {8}},
    LinearQuestion{kBf16, 45, 70, 3, {2}},
    LinearQuestion{kBf16, 64, 64, 1, kFull},
    LinearQuestion{kBf16, 33, 71, 19, kFull},
    LinearQuestion{kF32, 64, 96, 1},
    LinearQuestion{kF32, 40, 71, 33},
    LinearQuestion{kF32, 32, 132, 5, {4}},
    LinearQuestion{kF32, 64, 96, 3, kFull},
    LinearQuestion{kF32, 45, 70, 18, kFull},
    LinearQuestion{kBf16, 40, 48, 2, {}, 3},
    LinearQuestion{kBf16, 48, 40, 3, kFull, 3},
    FfnQuestion{kBf16, 64, 48, 1, 1},
    FfnQuestion{kBf16, 96, 70, 20, 2},
    FfnQuestion{kF32, 64, 33, 3, 2},
    AttentionQuestion{64, 16, 4, 1, 130, 16},
    AttentionQuestion{44, 10, 5, 3, 66, 4},
    AttentionQuestion{128, 64, 17, 2, 63, 16},
    GateQuestion{gate(GateScoring::kSigmoid, GateMethod::kNoauxTc, 64, 8), 3},
    GateQuestion{gate(GateScoring::kSoftmax, GateMethod::kGreedy, 33, 1), 3},
    GateQuestion{gate(GateScoring::kSoftmax, GateMethod::kGroupLimitedGreedy, 40, 4), 17},
    RowsQuestion{RowOp::kNorm, 1, 512},
    RowsQuestion{RowOp::kNorm, 3, 70},
    RowsQuestion{RowOp::kRopeInterleaved, 3, 64},
    RowsQuestion{RowOp::kRopeHalves, 3, 34},
    RowsQuestion{RowOp::kEmbeddingBf16, 3, 70},
    RowsQuestion{RowOp::kEmbeddingF32, 3, 70},
    RowsQuestion{RowOp::kSilu, 3, 133},
    RowsQuestion{RowOp::kCombine, 3, 70},
    RowsQuestion{RowOp::kResidual, 3, 133},
    RowsQuestion{RowOp::kToWire, 3, 133},
    RowsQuestion{RowOp::kLogSoftmax, 1, 1003},
};

struct Words {
  std::string rows(std::size_t n) const { return std::to_string(n) + (n == 1 ? " row" : " rows"); }
  std::string type(WeightType t) const { return t == kBf16 ? "bf16, " : "f32, "; }

  std::string operator()(const LinearQuestion& q) const {
    return (q.heads > 1 ? "linear_heads (" : "linear (") + type(q.type) + rows(q.rows) + ", " +
           std::to_string(q.n) + " x " + std::to_string(q.k) +
           (q.options.slices > 1 ? ", " + std::to_string(q.options.slices) + " slices" : "") +
           (q.options.full_precision ? ", full precision)" : ")");
  }
  std::string operator()(const FfnQuestion& q) const {
    return "expert_ffn (" + type(q.type) + rows(q.rows) + ", " + std::to_string(q.inner) + " x " +
           std::to_string(q.hidden) + ")";
  }
  std::string operator()(const AttentionQuestion& q) const {
    return "mla_attention (" + rows(q.rows) + ", " + std::to_string(q.heads) + " heads, " +
           std::to_string(q.last + 1) + " positions)";
  }
  std::string operator()(const GateQuestion& q) const {
    return "moe_gate (" + rows(q.rows) + ", " + std::to_string(q.config.experts) + " experts)";
  }
  std::string operator()(const RowsQuestion& q) const {
    static constexpr const char* kNames[] = {
        "rms_norm",      "rope",     "rope",    "embedding bf16", "embedding f32",
        "silu_mul",      "combine",  "residual_add", "to_wire",   "log_softmax"};
    return std::string(kNames[static_cast<std::size_t>(q.op)]) + " (" + rows(q.rows) + " of " +
           std::to_string(q.cols) + ")";
  }
};

}  // namespace

std::vector<float> Integers::weights(WeightType type, std::size_t count) {
  std::vector<float> w = values(count);
  if (type == WeightType::kF32) return w;
  for (float& x : w)
    x = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xffff0000u);
  return w;
}

std::vector<std::byte> stored(WeightType type, const std::vector<float>& values) {
  std::vector<std::byte> out(values.size() * weight_size(type));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (type == WeightType::kF32) {
      std::memcpy(out.data() + i * 4, &values[i], 4);
    } else {
      const Bf16 half = to_bf16(values[i]);
      std::memcpy(out.data() + i * 2, &half, 2);
    }
  }
  return out;
}

std::span<const Question> known_questions() { return kQuestions; }

std::string to_string(const Question& question) { return std::visit(Words{}, question); }

}  // namespace troupe::kernels
