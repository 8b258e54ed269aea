#include "kernels/scalar_math.h"
#include "kernels/weight.h"
#include "model/spec/spec_builder.h"
#include "runtime/limits.h"

namespace troupe {

using limits::kDimensionMax;

GroupedConfig read_heads(SpecBuilder& b, std::int32_t head_dim) {
  JsonReader& in = b.in;
  GroupedConfig c;
  c.heads = in.int32("num_attention_heads", 1, kDimensionMax);
  c.kv_heads = in.int32_or("num_key_value_heads", c.heads, 1, kDimensionMax);
  if (in.ok() && c.heads % c.kv_heads != 0)
    in.fail("num_key_value_heads",
            "a divisor of num_attention_heads, " + std::to_string(c.heads));
  if (in.ok() && head_dim == 0 && !in.has("head_dim") && b.spec.hidden % c.heads != 0)
    in.fail("num_attention_heads", "a divisor of hidden_size, " + std::to_string(b.spec.hidden) +
                                       ", since head_dim is absent");
  if (!in.ok()) return c;
  c.head_dim = in.int32_or("head_dim", head_dim > 0 ? head_dim : b.spec.hidden / c.heads, 2,
                           kDimensionMax);
  if (in.ok() && static_cast<std::int64_t>(c.heads) * c.head_dim > kDimensionMax)
    in.fail("num_attention_heads", "small enough that all heads together hold at most " +
                                       std::to_string(kDimensionMax) + " numbers a token");
  return c;
}

std::vector<std::int32_t> read_windows(SpecBuilder& b,
                                       bool (*sliding)(std::int32_t layer, std::int32_t first),
                                       std::int32_t first) {
  JsonReader& in = b.in;
  const auto layers = b.spec.num_layers();
  std::vector<std::int32_t> windows(static_cast<std::size_t>(layers));
  const auto types = in.strings("layer_types");
  if (!types.empty() && types.size() != windows.size())
    in.fail("layer_types", "a list of num_hidden_layers, " + std::to_string(layers) + ", kinds");
  bool any = false;
  for (std::int32_t layer = 0; layer < layers && in.ok(); ++layer) {
    const auto at = static_cast<std::size_t>(layer);
    if (!types.empty() && types[at] != "full_attention" && types[at] != "sliding_attention")
      in.fail("layer_types", "of \"full_attention\" and \"sliding_attention\"");
    const bool slides = types.empty() ? sliding(layer, first) : types[at] == "sliding_attention";
    windows[at] = slides ? 1 : 0;
    any = any || slides;
  }
  if (!any || !in.ok()) return windows;
  const auto window = in.int32("sliding_window", 1, kDimensionMax);
  for (auto& w : windows) w *= window;
  return windows;
}

void add_grouped_attention(SpecBuilder& b, LayerSpec& layer, std::int32_t index,
                           const GroupedConfig& c, std::int32_t window) {
  const std::int64_t hidden = b.spec.hidden, d = c.head_dim;
  const std::int64_t q = c.heads * d, kv = c.kv_heads * d;
  AttentionSpec& a = layer.attention;
  a.kind = AttentionKind::kGrouped;
  a.heads = c.heads;
  a.kv_heads = c.kv_heads;
  a.qk_dim = a.v_dim = c.head_dim;
  a.scale = static_cast<float>(1.0 / kernels::sqrt_f64(c.head_dim));
  a.window = window;
  a.norm_eps = b.spec.norm_eps;
  layer.kv = {{static_cast<std::int32_t>(kv)}, {static_cast<std::int32_t>(kv)}};

  const std::string p = layer_prefix(index), s = p + "self_attn.";
  const MatrixOptions outputs = {.split = SplitAxis::kOutputs};
  WeightList out(b, layer.weights);
  out.vector(WeightRole::kInputNorm, p + "input_layernorm.weight", hidden);
  out.matrix(WeightRole::kQ, s + "q_proj", q, hidden, outputs);
  out.matrix(WeightRole::kK, s + "k_proj", kv, hidden, outputs);
  out.matrix(WeightRole::kV, s + "v_proj", kv, hidden, outputs);
  if (c.qkv_bias) {
    out.vector(WeightRole::kQBias, s + "q_proj.bias", q);
    out.vector(WeightRole::kKBias, s + "k_proj.bias", kv);
    out.vector(WeightRole::kVBias, s + "v_proj.bias", kv);
  }
  if (c.qk_norm) {
    out.vector(WeightRole::kQNorm, s + "q_norm.weight", d);
    out.vector(WeightRole::kKNorm, s + "k_norm.weight", d);
  }
  if (c.sinks) out.vector(WeightRole::kSinks, s + "sinks", c.heads);
  out.matrix(WeightRole::kO, s + "o_proj", hidden, q,
             {.split = SplitAxis::kInputs, .slices = kernels::sum_slices(c.heads)});
  if (c.o_bias) out.vector(WeightRole::kOBias, s + "o_proj.bias", hidden);
  out.vector(WeightRole::kPostNorm, p + "post_attention_layernorm.weight", hidden);
}

}  // namespace troupe
