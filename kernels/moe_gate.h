#pragma once

#include <cstdint>

#include "kernels/stream.h"

namespace troupe::kernels {

enum class GateScoring : std::uint8_t {
  kSigmoid,
  kSoftmax,        ///< over all experts
  kSoftmaxChosen,  ///< the best logits, then a softmax over those (gpt-oss)
};

enum class GateMethod : std::uint8_t {
  kNoauxTc,             ///< DeepSeek-V3: groups by the sum of their two best biased scores
  kGreedy,              ///< the best of all experts
  kGroupLimitedGreedy,  ///< DeepSeek-V2: groups by their best score
};

struct GateConfig {
  GateScoring scoring = GateScoring::kSigmoid;
  GateMethod method = GateMethod::kNoauxTc;
  int experts = 0;
  int n_group = 1;     ///< divides experts
  int topk_group = 1;  ///< groups that may be chosen from, <= n_group
  int top_k = 1;       ///< <= experts and limits::kTopKMax
  bool norm_topk_prob = false;
  float routed_scaling_factor = 1;
};

/// Chooses top_k experts for every row of logits [rows, experts].
/// `bias` [experts] (e_score_correction_bias) shifts the choice, never the weight; null is zeros.
/// Writes ids [rows, top_k] and weights [rows, top_k], sorted by expert id.
///
/// Follows Hugging Face's modeling_deepseek_v3.py (DeepseekV3TopkRouter) and
/// modeling_deepseek_v2.py (DeepseekV2MoEGate), modeling_gpt_oss.py (GptOssTopKRouter): experts
/// outside the chosen groups are not chosen while others are left, whatever the biases say (as in
/// DeepSeek's own inference code; transformers before 5 let them score 0.0); the chosen weights are
/// divided by their sum + 1e-20 if norm_topk_prob, then multiplied by the
/// scaling factor. Of equal scores the lowest id wins. A NaN counts as the lowest score.
void moe_gate(Stream& stream, const GateConfig& config, const Tensor& logits, const float* bias,
              std::int32_t* ids, float* weights);

}  // namespace troupe::kernels
