#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/json_reader.h"
#include "model/spec/model_spec.h"
#include "model/spec/quantization.h"

/// What the architectures' files share: reading the common keys, listing weights.
namespace troupe {

struct SpecBuilder {
  JsonReader& in;
  const std::string& file;
  const Quantization& quantization;
  ModelSpec spec;
  bool tied = false;  ///< the head is the embedding
};

/// Sizes, epsilon, special tokens. Must come first.
void read_common(SpecBuilder& b);
/// The activation must be SiLU.
void check_activation(JsonReader& in);
/// A key that must be false, since biases there are not supported.
void refuse_biases(JsonReader& in, const char* key);
/// The embedding, the final norm, the head.
void add_ends(SpecBuilder& b);

std::string layer_prefix(std::int32_t layer);  ///< "model.layers.3."

struct MatrixOptions {
  SplitAxis split = SplitAxis::kNone;
  int slices = 1;
  Precision precision = Precision::kProduct;
  ModuleKind kind = ModuleKind::kLinear;
};

/// Appends weights to a list, in the formats that the config says.
class WeightList {
 public:
  WeightList(SpecBuilder& b, std::vector<WeightSpec>& out) : b_(b), out_(out) {}
  /// `name` is the tensor's own.
  WeightSpec& vector(WeightRole role, const std::string& name, std::int64_t k);
  WeightSpec& plain(WeightRole role, const std::string& name, std::int64_t n, std::int64_t k,
                    const MatrixOptions& options = {});
  /// `module` is the name without ".weight"; "*" stands for an expert's number.
  WeightSpec& matrix(WeightRole role, const std::string& module, std::int64_t n, std::int64_t k,
                     const MatrixOptions& options = {});
  /// gate_proj, up_proj, down_proj of a dense MLP, or of the shared experts.
  void mlp(const std::string& prefix, std::int64_t inner);
  /// The same of each routed expert, under `prefix`.N.
  void experts(const std::string& prefix, std::int64_t inner);

 private:
  SpecBuilder& b_;
  std::vector<WeightSpec>& out_;
};

/// Grouped-query attention as Llama names it.
struct GroupedConfig {
  std::int32_t heads = 0, kv_heads = 0, head_dim = 0;
  bool qkv_bias = false, o_bias = false, qk_norm = false, sinks = false;
};
/// `head_dim` if the config has none; 0: hidden / heads.
GroupedConfig read_heads(SpecBuilder& b, std::int32_t head_dim = 0);
/// Attention, its weights and its pools, and the norm before it. `window` as in AttentionSpec.
void add_grouped_attention(SpecBuilder& b, LayerSpec& layer, std::int32_t index,
                           const GroupedConfig& config, std::int32_t window);

/// Window of every layer, from layer_types; where that is absent, as `sliding(layer)` says.
std::vector<std::int32_t> read_windows(SpecBuilder& b, bool (*sliding)(std::int32_t layer,
                                                                       std::int32_t first),
                                       std::int32_t first = 0);

/// The gate's own keys of DeepSeek and GLM, with the checks that they want.
struct GateKeys {
  const char* experts = "n_routed_experts";
  kernels::GateConfig defaults;
};
kernels::GateConfig read_gate(JsonReader& in, const GateKeys& keys);

}  // namespace troupe
