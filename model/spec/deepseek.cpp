#include "kernels/scalar_math.h"
#include "kernels/weight.h"
#include "model/spec/architectures.h"
#include "model/spec/rope_config.h"
#include "runtime/limits.h"

// Published as modeling_deepseek_v2.py and modeling_deepseek_v3.py.
namespace troupe {
namespace {

using limits::kDimensionMax;

AttentionSpec read_attention(SpecBuilder& b) {
  JsonReader& in = b.in;
  AttentionSpec a;
  a.kind = AttentionKind::kMla;
  a.heads = in.int32("num_attention_heads", 1, kDimensionMax);
  if (in.int32_or("num_key_value_heads", a.heads, 1, kDimensionMax) != a.heads)
    in.fail("num_key_value_heads", "equal to num_attention_heads, " + std::to_string(a.heads) +
                                       ", since latent attention has no groups");
  a.q_lora = in.int32_or("q_lora_rank", 0, 1, kDimensionMax);
  a.kv_lora = in.int32("kv_lora_rank", 1, kDimensionMax);
  a.nope = in.int32("qk_nope_head_dim", 1, kDimensionMax);
  a.rope = in.int32("qk_rope_head_dim", 2, kDimensionMax);
  if (in.ok() && a.rope % 2 != 0)
    in.fail("qk_rope_head_dim", "even, because positions rotate pairs of numbers");
  a.v_head = in.int32("v_head_dim", 1, kDimensionMax);
  a.qk_dim = a.kv_lora + a.rope;
  a.v_dim = a.kv_lora;
  const std::int64_t numbers =
      static_cast<std::int64_t>(a.heads) *
      (static_cast<std::int64_t>(a.nope) + a.rope + a.v_head + a.kv_lora);
  if (in.ok() && numbers > kDimensionMax)
    in.fail("num_attention_heads", "small enough that all heads together hold at most " +
                                       std::to_string(kDimensionMax) + " numbers a token");
  return a;
}

/// The routed experts of every layer that has them, and which those are.
struct Experts {
  kernels::GateConfig gate;  ///< no experts: all layers are dense
  std::int32_t inner = 0, shared = 0;
  std::int32_t first = 0, every = 1;
  bool in_layer(std::int32_t layer) const {
    return gate.experts > 0 && layer >= first && layer % every == 0;
  }
};

/// The keys of V2 and V3 gates have their family's values as defaults, because transformers leaves
/// them out of the files that it writes.
Experts read_experts(SpecBuilder& b) {
  JsonReader& in = b.in;
  const bool v3 = b.spec.architecture != "deepseek_v2";
  Experts e;
  if (!v3 && !in.has("n_routed_experts")) return e;
  GateKeys keys;
  keys.defaults.scoring = v3 ? kernels::GateScoring::kSigmoid : kernels::GateScoring::kSoftmax;
  keys.defaults.method = v3 ? kernels::GateMethod::kNoauxTc : kernels::GateMethod::kGreedy;
  keys.defaults.norm_topk_prob = v3;
  e.gate = read_gate(in, keys);
  e.first = in.int32_or("first_k_dense_replace", 0, 0, limits::kLayersMax);
  e.every = in.int32_or("moe_layer_freq", 1, 1, limits::kLayersMax);
  e.inner = in.int32("moe_intermediate_size", 1, kDimensionMax);
  const std::int64_t shared =
      std::int64_t{in.int32_or("n_shared_experts", 0, 0, limits::kExpertsMax)} * e.inner;
  if (in.ok() && shared > kDimensionMax)
    in.fail("n_shared_experts", "small enough that the shared experts' width is at most " +
                                    std::to_string(kDimensionMax));
  e.shared = in.ok() ? static_cast<std::int32_t>(shared) : 0;
  return e;
}

void add_attention(SpecBuilder& b, LayerSpec& layer, const std::string& p) {
  const AttentionSpec& a = layer.attention;
  const std::int64_t hidden = b.spec.hidden, heads = a.heads, q = heads * (a.nope + a.rope);
  const std::string s = p + "self_attn.";
  const MatrixOptions outputs = {.split = SplitAxis::kOutputs};
  WeightList out(b, layer.weights);
  out.vector(WeightRole::kInputNorm, p + "input_layernorm.weight", hidden);
  if (a.q_lora > 0) {
    out.matrix(WeightRole::kQa, s + "q_a_proj", a.q_lora, hidden);
    out.vector(WeightRole::kQaNorm, s + "q_a_layernorm.weight", a.q_lora);
    out.matrix(WeightRole::kQb, s + "q_b_proj", q, a.q_lora, outputs);
  } else {
    out.matrix(WeightRole::kQb, s + "q_proj", q, hidden, outputs);
  }
  out.matrix(WeightRole::kKvA, s + "kv_a_proj_with_mqa", a.kv_lora + a.rope, hidden);
  out.vector(WeightRole::kKvANorm, s + "kv_a_layernorm.weight", a.kv_lora);
  // The absorbed form has two products more than the published one, so their inputs are not
  // rounded: each rounding would be one that the model was not trained with.
  out.matrix(WeightRole::kKvB, s + "kv_b_proj", heads * (a.nope + a.v_head), a.kv_lora,
             {.split = SplitAxis::kOutputs, .precision = Precision::kFull});
  out.matrix(WeightRole::kO, s + "o_proj", hidden, heads * a.v_head,
             {.split = SplitAxis::kInputs, .slices = kernels::sum_slices(heads)});
  out.vector(WeightRole::kPostNorm, p + "post_attention_layernorm.weight", hidden);
  layer.kv = {{a.kv_lora + a.rope}};
}

void add_experts(SpecBuilder& b, LayerSpec& layer, const Experts& e, const std::string& mlp) {
  layer.feed_forward = FeedForwardKind::kExperts;
  layer.inner = e.shared;
  layer.experts = {e.inner, e.gate};
  WeightList out(b, layer.weights);
  // The gate's choice jumps on rounding, so its inputs are never rounded.
  out.plain(WeightRole::kRouter, mlp + "gate.weight", e.gate.experts, b.spec.hidden,
            {.precision = Precision::kFull});
  if (e.gate.method == kernels::GateMethod::kNoauxTc)
    out.vector(WeightRole::kRouterCorrection, mlp + "gate.e_score_correction_bias",
               e.gate.experts);
  if (e.shared > 0) out.mlp(mlp + "shared_experts.", e.shared);
  WeightList(b, layer.expert).experts(mlp + "experts.", e.inner);
}

}  // namespace

Status read_deepseek(SpecBuilder& b) {
  JsonReader& in = b.in;
  check_activation(in);
  refuse_biases(in, "attention_bias");
  refuse_biases(in, "mlp_bias");
  if (!in.boolean_or("rope_interleave", true))
    in.fail("rope_interleave", "true, as the published checkpoints store it");
  read_common(b);
  AttentionSpec attention = read_attention(b);
  const auto inner = in.int32("intermediate_size", 1, kDimensionMax);
  const Experts experts = read_experts(b);
  if (!in.ok()) return in.status();
  const auto score_factor = read_rope(b, attention.rope, kernels::RopePairs::kInterleaved);
  if (!score_factor) return score_factor.error();
  attention.scale =
      static_cast<float>(1.0 / kernels::sqrt_f64(attention.nope + attention.rope) * *score_factor);

  for (std::int32_t i = 0; i < b.spec.num_layers(); ++i) {
    LayerSpec& layer = b.spec.layers[static_cast<std::size_t>(i)];
    layer.attention = attention;
    add_attention(b, layer, layer_prefix(i));
    const std::string mlp = layer_prefix(i) + "mlp.";
    if (experts.in_layer(i)) {
      add_experts(b, layer, experts, mlp);
    } else {
      layer.inner = inner;
      WeightList(b, layer.weights).mlp(mlp, inner);
    }
  }
  add_ends(b);
  return in.status();
}

}  // namespace troupe
