#include "model/tensor_list.h"

namespace troupe {
namespace {

Status check_all(const Checkpoint& checkpoint, const std::vector<TensorSpec>& specs) {
  for (const auto& spec : specs)
    if (auto status = checkpoint.check_tensor(spec.name, kWeightDTypes, spec.shape); !status)
      return status;
  return {};
}

}  // namespace

/// Outputs are split where each rank computes some of them (heads, inner rows, the vocabulary), and
/// inputs where it brings what it has of them to a sum.
SplitAxis split_axis(std::string_view tensor) {
  constexpr std::string_view kWeight = ".weight";
  if (!tensor.ends_with(kWeight)) return SplitAxis::kNone;
  tensor.remove_suffix(kWeight.size());
  const auto dot = tensor.rfind('.');
  const std::string_view part = dot == tensor.npos ? tensor : tensor.substr(dot + 1);
  for (const std::string_view rows :
       {"q_b_proj", "q_proj", "kv_b_proj", "gate_proj", "up_proj", "embed_tokens", "lm_head"})
    if (part == rows) return SplitAxis::kRows;
  return part == "o_proj" || part == "down_proj" ? SplitAxis::kColumns : SplitAxis::kNone;
}

std::string layer_prefix(std::int32_t layer) {
  return "model.layers." + std::to_string(layer) + ".";
}

std::string expert_prefix(std::int32_t layer, std::int32_t expert) {
  return layer_prefix(layer) + "mlp.experts." + std::to_string(expert) + ".";
}

std::vector<TensorSpec> attention_tensors(const ModelConfig& c, std::int32_t layer) {
  const std::string p = layer_prefix(layer), a = p + "self_attn.";
  const std::int64_t heads = c.num_heads, q_rows = heads * c.qk_head_dim();
  std::vector<TensorSpec> specs = {
      {p + "input_layernorm.weight", {c.hidden_size}},
      {p + "post_attention_layernorm.weight", {c.hidden_size}},
      {a + "kv_a_proj_with_mqa.weight", {c.kv_row(), c.hidden_size}},
      {a + "kv_a_layernorm.weight", {c.kv_lora_rank}},
      {a + "kv_b_proj.weight", {heads * (c.qk_nope_head_dim + c.v_head_dim), c.kv_lora_rank}},
      {a + "o_proj.weight", {c.hidden_size, heads * c.v_head_dim}},
  };
  if (c.q_lora_rank > 0) {
    specs.push_back({a + "q_a_proj.weight", {c.q_lora_rank, c.hidden_size}});
    specs.push_back({a + "q_a_layernorm.weight", {c.q_lora_rank}});
    specs.push_back({a + "q_b_proj.weight", {q_rows, c.q_lora_rank}});
  } else {
    specs.push_back({a + "q_proj.weight", {q_rows, c.hidden_size}});
  }
  return specs;
}

std::vector<TensorSpec> mlp_tensors(const ModelConfig& c, const std::string& prefix,
                                    std::int64_t width) {
  return {{prefix + "gate_proj.weight", {width, c.hidden_size}},
          {prefix + "up_proj.weight", {width, c.hidden_size}},
          {prefix + "down_proj.weight", {c.hidden_size, width}}};
}

std::vector<TensorSpec> feed_forward_tensors(const ModelConfig& c, std::int32_t layer) {
  const std::string mlp = layer_prefix(layer) + "mlp.";
  if (c.layer_kind(layer) == LayerKind::kDense)
    return mlp_tensors(c, mlp, c.intermediate_size);
  std::vector<TensorSpec> specs;
  if (c.num_shared_experts > 0)
    specs = mlp_tensors(c, mlp + "shared_experts.", c.shared_intermediate_size());
  specs.push_back({mlp + "gate.weight", {c.num_experts, c.hidden_size}});
  if (c.topk_method == TopkMethod::kNoAuxTc)
    specs.push_back({mlp + "gate.e_score_correction_bias", {c.num_experts}});
  return specs;
}

Status check_tensors(const Checkpoint& checkpoint) {
  const ModelConfig& c = checkpoint.config();
  std::vector<TensorSpec> ends = {{"model.embed_tokens.weight", {c.vocab_size, c.hidden_size}},
                                  {"model.norm.weight", {c.hidden_size}}};
  if (!c.tie_word_embeddings)
    ends.push_back({"lm_head.weight", {c.vocab_size, c.hidden_size}});
  if (auto status = check_all(checkpoint, ends); !status) return status;
  for (std::int32_t layer = 0; layer < c.num_layers; ++layer) {
    if (auto status = check_all(checkpoint, attention_tensors(c, layer)); !status) return status;
    if (auto status = check_all(checkpoint, feed_forward_tensors(c, layer)); !status)
      return status;
    if (c.layer_kind(layer) == LayerKind::kDense) continue;
    for (std::int32_t expert = 0; expert < c.num_experts; ++expert)
      if (auto status = check_all(checkpoint, mlp_tensors(c, expert_prefix(layer, expert),
                                                          c.moe_intermediate_size));
          !status)
        return status;
  }
  return {};
}

}  // namespace troupe
