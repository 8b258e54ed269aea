#include "model/config.h"

#include "model/json_reader.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

using limits::kDimensionMax;

Status check_architecture(JsonReader& in, ModelConfig& config) {
  config.architecture = in.string("model_type");
  if (!in.ok()) return in.status();
  if (config.architecture != "deepseek_v3" && config.architecture != "deepseek_v2")
    in.fail("model_type", "\"deepseek_v3\" or \"deepseek_v2\", the families served so far");
  if (const auto* quantization = in.find("quantization_config")) {
    std::string method = "unnamed";
    if (quantization->is_object() && quantization->contains("quant_method") &&
        (*quantization)["quant_method"].is_string())
      method = (*quantization)["quant_method"].get<std::string>();
    in.fail("quantization_config", "absent, because checkpoints quantized with the method '" +
                                       method.substr(0, 32) +
                                       "' are not supported yet; convert this one to bf16");
  }
  if (in.string_or("hidden_act", "silu") != "silu") in.fail("hidden_act", "\"silu\"");
  if (in.boolean_or("attention_bias", false))
    in.fail("attention_bias", "false, because biases are not supported for this family");
  if (in.boolean_or("mlp_bias", false))
    in.fail("mlp_bias", "false, because biases are not supported for this family");
  if (!in.boolean_or("rope_interleave", true))
    in.fail("rope_interleave", "true, as the published checkpoints store it");
  return in.status();
}

void read_shape(JsonReader& in, ModelConfig& c) {
  c.hidden_size = in.int32("hidden_size", 1, kDimensionMax);
  c.vocab_size = in.int32("vocab_size", 1, kDimensionMax);
  c.num_layers = in.int32("num_hidden_layers", 1, limits::kLayersMax);
  c.max_position_embeddings = in.int32("max_position_embeddings", 1, kDimensionMax);
  c.rms_norm_eps = in.number_or("rms_norm_eps", 1e-6, 1e-30, 1.0);
  c.tie_word_embeddings = in.boolean_or("tie_word_embeddings", false);
  c.num_nextn_predict_layers = in.int32_or("num_nextn_predict_layers", 0, 0, limits::kLayersMax);

  c.num_heads = in.int32("num_attention_heads", 1, kDimensionMax);
  if (in.int32_or("num_key_value_heads", c.num_heads, 1, kDimensionMax) != c.num_heads)
    in.fail("num_key_value_heads",
            "equal to num_attention_heads, " + std::to_string(c.num_heads) +
                ", since latent attention has no groups");
  c.q_lora_rank = in.int32_or("q_lora_rank", 0, 1, kDimensionMax);
  c.kv_lora_rank = in.int32("kv_lora_rank", 1, kDimensionMax);
  c.qk_nope_head_dim = in.int32("qk_nope_head_dim", 1, kDimensionMax);
  c.qk_rope_head_dim = in.int32("qk_rope_head_dim", 2, kDimensionMax);
  if (in.ok() && c.qk_rope_head_dim % 2 != 0)
    in.fail("qk_rope_head_dim", "even, because positions rotate pairs of numbers");
  c.v_head_dim = in.int32("v_head_dim", 1, kDimensionMax);
  c.intermediate_size = in.int32("intermediate_size", 1, kDimensionMax);

  const std::int64_t head_numbers =
      static_cast<std::int64_t>(c.num_heads) *
      (static_cast<std::int64_t>(c.qk_head_dim()) + c.v_head_dim + c.kv_lora_rank);
  if (in.ok() && head_numbers > kDimensionMax)
    in.fail("num_attention_heads", "small enough that all heads together hold at most " +
                                       std::to_string(kDimensionMax) + " numbers a token");
}

/// The keys of V2 and V3 gates have their family's values as defaults, because transformers leaves
/// them out of the files that it writes.
void read_experts(JsonReader& in, ModelConfig& c) {
  const bool v3 = c.architecture == "deepseek_v3";
  c.num_experts = in.int32_or("n_routed_experts", 0, 1, limits::kExpertsMax);
  if (c.num_experts == 0) {
    if (v3) in.fail("n_routed_experts", "a whole number of experts");
    c.first_k_dense_replace = c.num_layers;
    return;
  }
  c.first_k_dense_replace = in.int32_or("first_k_dense_replace", 0, 0, limits::kLayersMax);
  c.moe_layer_freq = in.int32_or("moe_layer_freq", 1, 1, limits::kLayersMax);
  c.moe_intermediate_size = in.int32("moe_intermediate_size", 1, kDimensionMax);
  c.num_shared_experts = in.int32_or("n_shared_experts", 0, 0, limits::kExpertsMax);
  if (in.ok() && static_cast<std::int64_t>(c.num_shared_experts) * c.moe_intermediate_size >
                     kDimensionMax)
    in.fail("n_shared_experts", "small enough that the shared experts' width is at most " +
                                    std::to_string(kDimensionMax));
  c.top_k = in.int32("num_experts_per_tok", 1, limits::kTopKMax);
  c.num_expert_groups = in.int32_or("n_group", 1, 1, limits::kExpertsMax);
  c.top_k_groups = in.int32_or("topk_group", 1, 1, limits::kExpertsMax);
  c.norm_topk_prob = in.boolean_or("norm_topk_prob", v3);
  c.routed_scaling_factor = in.number_or("routed_scaling_factor", 1.0, 1e-6, 1e6);

  const auto scoring = in.string_or("scoring_func", v3 ? "sigmoid" : "softmax");
  if (scoring != "sigmoid" && scoring != "softmax")
    in.fail("scoring_func", "\"sigmoid\" or \"softmax\"");
  c.scoring_func = scoring == "sigmoid" ? ScoringFunc::kSigmoid : ScoringFunc::kSoftmax;

  const auto method = in.string_or("topk_method", v3 ? "noaux_tc" : "greedy");
  if (method == "noaux_tc") c.topk_method = TopkMethod::kNoAuxTc;
  else if (method == "group_limited_greedy") c.topk_method = TopkMethod::kGroupLimitedGreedy;
  else if (method == "greedy") c.topk_method = TopkMethod::kGreedy;
  else in.fail("topk_method", "\"noaux_tc\", \"group_limited_greedy\" or \"greedy\"");
}

void check_experts(JsonReader& in, const ModelConfig& c) {
  if (!in.ok() || c.num_experts == 0) return;
  if (c.top_k > c.num_experts)
    in.fail("num_experts_per_tok",
            "at most n_routed_experts, " + std::to_string(c.num_experts));
  if (c.topk_method == TopkMethod::kGreedy || !in.ok()) return;
  if (c.num_experts % c.num_expert_groups != 0)
    in.fail("n_group", "a divisor of n_routed_experts, " + std::to_string(c.num_experts));
  if (c.top_k_groups > c.num_expert_groups)
    in.fail("topk_group", "at most n_group, " + std::to_string(c.num_expert_groups));
  if (!in.ok()) return;
  const std::int32_t per_group = c.num_experts / c.num_expert_groups;
  if (c.topk_method == TopkMethod::kNoAuxTc && per_group < 2)
    in.fail("n_group", "small enough that a group has two experts, whose scores rank it");
  if (static_cast<std::int64_t>(c.top_k_groups) * per_group < c.top_k)
    in.fail("topk_group", "large enough that the chosen groups hold num_experts_per_tok, " +
                              std::to_string(c.top_k) + ", experts");
}

/// Old files have rope_theta and rope_scaling; those of transformers 5 have both in
/// rope_parameters.
Status read_rope(JsonReader& in, ModelConfig& c, const std::string& file) {
  const char* key = in.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  c.rope_theta = in.number_or("rope_theta", 10000.0, 1.0 + 1e-6, 1e12);
  if (!in.ok() || !in.has(key)) return in.status();

  JsonReader rope(*in.find(key), file + ", " + key);
  if (!rope.ok()) return rope.status();
  c.rope_theta = rope.number_or("rope_theta", c.rope_theta, 1.0 + 1e-6, 1e12);
  const char* type_key = rope.has("rope_type") ? "rope_type" : "type";
  const auto type = rope.string_or(type_key, "default");
  if (type == "default") return rope.status();
  if (type != "yarn") rope.fail(type_key, "\"yarn\" or \"default\"");

  YarnScaling yarn;
  yarn.original_max_position_embeddings =
      rope.int32("original_max_position_embeddings", 1, kDimensionMax);
  yarn.factor = rope.number("factor", 1.0, 1e6);
  yarn.beta_fast = rope.number_or("beta_fast", 32.0, 1e-6, 1e6);
  yarn.beta_slow = rope.number_or("beta_slow", 1.0, 1e-6, 1e6);
  yarn.mscale = rope.number_or("mscale", 0.0, 0.0, 1e3);
  yarn.mscale_all_dim = rope.number_or("mscale_all_dim", 0.0, 0.0, 1e3);
  if (rope.has("attention_factor"))
    yarn.attention_factor = rope.number("attention_factor", 1e-6, 1e6);
  c.yarn = yarn;
  return rope.status();
}

}  // namespace

Result<ModelConfig> parse_model_config(std::string_view json, const std::string& file) {
  auto parsed = parse_json(json, file);
  if (!parsed) return parsed.error();
  JsonReader in(*parsed, file);
  if (!in.ok()) return in.status().error();

  ModelConfig config;
  if (auto status = check_architecture(in, config); !status) return status.error();
  read_shape(in, config);
  read_experts(in, config);
  check_experts(in, config);
  if (auto status = read_rope(in, config, file); !status) return status.error();
  config.eos_token_ids = in.ints("eos_token_id", 0, config.vocab_size - 1);
  if (in.has("bos_token_id"))
    config.bos_token_id = in.int32("bos_token_id", 0, config.vocab_size - 1);
  if (!in.ok()) return in.status().error();
  return config;
}

Result<ModelConfig> load_model_config(const std::string& folder) {
  const std::string file = folder + "/config.json";
  auto text = read_text_file(file, limits::kConfigBytesMax);
  if (!text) return text.error();
  return parse_model_config(*text, file);
}

}  // namespace troupe
