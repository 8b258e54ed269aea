#include "model/spec/architectures.h"
#include "model/spec/rope_config.h"
#include "runtime/limits.h"

// Published as modeling_llama.py.
namespace troupe {

Status read_llama(SpecBuilder& b) {
  JsonReader& in = b.in;
  check_activation(in);
  refuse_biases(in, "mlp_bias");
  read_common(b);
  GroupedConfig heads = read_heads(b);
  heads.qkv_bias = heads.o_bias = in.boolean_or("attention_bias", false);
  const auto inner = in.int32("intermediate_size", 1, limits::kDimensionMax);
  if (!in.ok()) return in.status();
  const auto turned = read_rope(b, heads.head_dim, kernels::RopePairs::kHalves);
  if (!turned) return turned.error();
  for (std::int32_t i = 0; i < b.spec.num_layers(); ++i) {
    LayerSpec& layer = b.spec.layers[static_cast<std::size_t>(i)];
    add_grouped_attention(b, layer, i, heads, 0);
    layer.inner = inner;
    WeightList(b, layer.weights).mlp(layer_prefix(i) + "mlp.", inner);
  }
  add_ends(b);
  return in.status();
}

}  // namespace troupe
