#include <algorithm>

#include "model/spec/architectures.h"
#include "model/spec/rope_config.h"
#include "runtime/limits.h"

// Published as modeling_qwen2.py, modeling_qwen3.py and modeling_qwen3_moe.py.
namespace troupe {
namespace {

using limits::kDimensionMax;

GroupedConfig read_attention(SpecBuilder& b) {
  const std::string& name = b.spec.architecture;
  GroupedConfig heads = read_heads(b, name == "qwen3" ? 128 : 0);
  if (name == "qwen2") {
    heads.qkv_bias = true;
  } else {
    heads.qk_norm = true;
    heads.qkv_bias = heads.o_bias = b.in.boolean_or("attention_bias", false);
  }
  return heads;
}

std::vector<std::int32_t> windows_of(SpecBuilder& b) {
  if (!b.in.boolean_or("use_sliding_window", false))
    return std::vector<std::int32_t>(b.spec.layers.size());
  const auto first = b.in.int32_or("max_window_layers", 28, 0, limits::kLayersMax);
  return read_windows(b, [](std::int32_t layer, std::int32_t from) { return layer >= from; },
                      first);
}

/// Which layers have experts, and what those are.
struct Experts {
  kernels::GateConfig gate;
  std::int32_t inner = 0, every = 1;
  std::vector<std::int32_t> dense;  ///< layers without
  bool in_layer(std::int32_t layer) const {
    return gate.experts > 0 && (layer + 1) % every == 0 &&
           std::find(dense.begin(), dense.end(), layer) == dense.end();
  }
};

Experts read_experts(SpecBuilder& b) {
  Experts e;
  if (b.spec.architecture != "qwen3_moe") return e;
  GateKeys keys;
  keys.experts = "num_experts";
  keys.defaults.scoring = kernels::GateScoring::kSoftmax;
  keys.defaults.method = kernels::GateMethod::kGreedy;
  e.gate = read_gate(b.in, keys);
  e.inner = b.in.int32("moe_intermediate_size", 1, kDimensionMax);
  e.every = b.in.int32_or("decoder_sparse_step", 1, 1, limits::kLayersMax);
  e.dense = b.in.ints("mlp_only_layers", 0, limits::kLayersMax);
  return e;
}

}  // namespace

Status read_qwen(SpecBuilder& b) {
  JsonReader& in = b.in;
  check_activation(in);
  read_common(b);
  const GroupedConfig heads = read_attention(b);
  const auto windows = windows_of(b);
  const auto inner = in.int32("intermediate_size", 1, kDimensionMax);
  const Experts experts = read_experts(b);
  if (!in.ok()) return in.status();
  const auto turned = read_rope(b, heads.head_dim, kernels::RopePairs::kHalves);
  if (!turned) return turned.error();

  for (std::int32_t i = 0; i < b.spec.num_layers(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    LayerSpec& layer = b.spec.layers[at];
    add_grouped_attention(b, layer, i, heads, windows[at]);
    const std::string mlp = layer_prefix(i) + "mlp.";
    WeightList out(b, layer.weights);
    if (experts.in_layer(i)) {
      layer.feed_forward = FeedForwardKind::kExperts;
      layer.experts = {experts.inner, experts.gate};
      out.plain(WeightRole::kRouter, mlp + "gate.weight", experts.gate.experts, b.spec.hidden,
                {.precision = Precision::kFull});
      WeightList(b, layer.expert).experts(mlp + "experts.", experts.inner);
    } else {
      layer.inner = inner;
      out.mlp(mlp, inner);
    }
  }
  add_ends(b);
  return in.status();
}

}  // namespace troupe
