#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/ids.h"
#include "runtime/result.h"

namespace troupe {

/// What a layer's feed-forward part is made of.
enum class LayerKind : std::uint8_t {
  kDense,    ///< one gated MLP
  kExperts,  ///< a gate, routed experts and shared experts
};

/// How the gate turns logits into scores.
enum class ScoringFunc : std::uint8_t { kSigmoid, kSoftmax };

/// How the gate picks experts.
enum class TopkMethod : std::uint8_t {
  kGreedy,              ///< the top-k of all
  kGroupLimitedGreedy,  ///< V2: within the groups of the highest maxima
  kNoAuxTc,             ///< V3: with a bias, within the groups of the highest sums of two
};

/// YaRN (arXiv 2309.00071), as DeepSeek and transformers' modeling_rope_utils.py spell it.
struct YarnScaling {
  double factor = 1.0;
  std::int32_t original_max_position_embeddings = 0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  double mscale = 0.0;          ///< 0: not given
  double mscale_all_dim = 0.0;  ///< 0: not given
  std::optional<double> attention_factor;
};

/// A DeepSeek-V2 or V3 model, from config.json. Every value has been checked.
struct ModelConfig {
  std::string architecture;  ///< "deepseek_v3" or "deepseek_v2"

  std::int32_t hidden_size = 0;
  std::int32_t vocab_size = 0;
  std::int32_t num_layers = 0;  ///< without MTP layers
  std::int32_t first_k_dense_replace = 0;
  std::int32_t moe_layer_freq = 1;
  std::int32_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  bool tie_word_embeddings = false;
  std::int32_t num_nextn_predict_layers = 0;  ///< MTP layers in the checkpoint; not loaded

  // Multi-head latent attention.
  std::int32_t num_heads = 0;
  std::int32_t q_lora_rank = 0;  ///< 0: queries come straight from the hidden state (V2-Lite)
  std::int32_t kv_lora_rank = 0;
  std::int32_t qk_nope_head_dim = 0;
  std::int32_t qk_rope_head_dim = 0;
  std::int32_t v_head_dim = 0;
  double rope_theta = 10000.0;
  std::optional<YarnScaling> yarn;

  // Feed-forward.
  std::int32_t intermediate_size = 0;      ///< of dense layers
  std::int32_t moe_intermediate_size = 0;  ///< of one expert
  std::int32_t num_experts = 0;            ///< routed; 0: every layer is dense
  std::int32_t num_shared_experts = 0;     ///< as one MLP of this many times moe_intermediate_size
  std::int32_t top_k = 0;
  std::int32_t num_expert_groups = 1;
  std::int32_t top_k_groups = 1;
  TopkMethod topk_method = TopkMethod::kGreedy;
  ScoringFunc scoring_func = ScoringFunc::kSoftmax;
  bool norm_topk_prob = false;
  double routed_scaling_factor = 1.0;

  std::vector<TokenId> eos_token_ids;  ///< may be empty
  std::optional<TokenId> bos_token_id;

  LayerKind layer_kind(std::int32_t layer) const {
    return num_experts > 0 && layer >= first_k_dense_replace && layer % moe_layer_freq == 0
               ? LayerKind::kExperts
               : LayerKind::kDense;
  }
  std::int32_t qk_head_dim() const { return qk_nope_head_dim + qk_rope_head_dim; }
  /// Numbers that the KV cache holds per token and layer: the latent and the rotated part.
  std::int32_t kv_row() const { return kv_lora_rank + qk_rope_head_dim; }
  std::int32_t shared_intermediate_size() const {
    return num_shared_experts * moe_intermediate_size;
  }
};

/// Parses config.json from memory. `file` names it in errors, which say the key and what was
/// expected.
Result<ModelConfig> parse_model_config(std::string_view json, const std::string& file);

/// Reads FOLDER/config.json.
Result<ModelConfig> load_model_config(const std::string& folder);

}  // namespace troupe
