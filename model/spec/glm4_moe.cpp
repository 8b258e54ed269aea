#include "model/spec/architectures.h"
#include "model/spec/rope_config.h"
#include "runtime/limits.h"

// Published as modeling_glm4_moe.py.
namespace troupe {

using limits::kDimensionMax;

Status read_glm4_moe(SpecBuilder& b) {
  JsonReader& in = b.in;
  check_activation(in);
  read_common(b);
  GroupedConfig heads = read_heads(b);
  heads.qkv_bias = in.boolean_or("attention_bias", false);
  heads.qk_norm = in.boolean_or("use_qk_norm", false);
  const auto inner = in.int32("intermediate_size", 1, kDimensionMax);
  const auto first = in.int32_or("first_k_dense_replace", 1, 0, limits::kLayersMax);
  GateKeys keys;
  keys.defaults.norm_topk_prob = true;
  const kernels::GateConfig gate = read_gate(in, keys);
  const auto expert_inner = in.int32("moe_intermediate_size", 1, kDimensionMax);
  const std::int64_t shared =
      std::int64_t{in.int32_or("n_shared_experts", 1, 0, limits::kExpertsMax)} * expert_inner;
  if (in.ok() && shared > kDimensionMax)
    in.fail("n_shared_experts", "small enough that the shared experts' width is at most " +
                                    std::to_string(kDimensionMax));
  if (!in.ok()) return in.status();
  const auto turned = read_rope(b, heads.head_dim, kernels::RopePairs::kHalves, {.partial = 0.5});
  if (!turned) return turned.error();

  for (std::int32_t i = 0; i < b.spec.num_layers(); ++i) {
    LayerSpec& layer = b.spec.layers[static_cast<std::size_t>(i)];
    add_grouped_attention(b, layer, i, heads, 0);
    const std::string mlp = layer_prefix(i) + "mlp.";
    WeightList out(b, layer.weights);
    if (i < first) {
      layer.inner = inner;
      out.mlp(mlp, inner);
      continue;
    }
    layer.feed_forward = FeedForwardKind::kExperts;
    layer.inner = static_cast<std::int32_t>(shared);
    layer.experts = {expert_inner, gate};
    out.plain(WeightRole::kRouter, mlp + "gate.weight", gate.experts, b.spec.hidden,
              {.precision = Precision::kFull});
    out.vector(WeightRole::kRouterCorrection, mlp + "gate.e_score_correction_bias", gate.experts);
    if (shared > 0) out.mlp(mlp + "shared_experts.", shared);
    WeightList(b, layer.expert).experts(mlp + "experts.", expert_inner);
  }
  add_ends(b);
  return in.status();
}

}  // namespace troupe
