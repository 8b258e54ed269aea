#include "model/weights.h"

#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "model/layer_weights.h"
#include "model/tensor_list.h"
#include "runtime/bf16.h"

namespace troupe {
namespace {

using kernels::PackedMatrix;
using kernels::PackOptions;
using kernels::WeightSource;
using kernels::WeightType;

/// Reads and packs tensors, keeping the first error, so that a loader reads as a list of tensors.
class WeightReader {
 public:
  WeightReader(const Checkpoint& checkpoint, Numerics numerics)
      : checkpoint_(checkpoint), numerics_(numerics) {}

  const Status& status() const { return status_; }

  /// A matrix [n, k] as it is stored.
  PackedMatrix matrix(const std::string& name, std::int64_t n, std::int64_t k,
                      const PackOptions& options = {}) {
    const auto source = open(name, n, k);
    PackedMatrix packed = pack(name, source, options);
    checkpoint_.release(name);
    return packed;
  }

  /// A vector [n], widened to float32.
  std::vector<float> vector(const std::string& name, std::int64_t n) {
    const auto view = tensor(name, {n});
    if (!status_.ok()) return {};
    std::vector<float> out(static_cast<std::size_t>(n));
    if (view.dtype == DType::kF32) {
      std::memcpy(out.data(), view.bytes.data(), view.bytes.size());
    } else {
      for (std::size_t i = 0; i < out.size(); ++i) {
        Bf16 x;
        std::memcpy(&x, view.bytes.data() + i * sizeof x, sizeof x);
        out[i] = to_float(x);
      }
    }
    return out;
  }

  EmbeddingTable embedding(const std::string& name, std::int64_t n, std::int64_t k) {
    EmbeddingTable table;
    const auto source = open(name, n, k);
    if (!status_.ok()) return table;
    table.data = Buffer(static_cast<std::size_t>(n * k) * kernels::weight_size(source.type));
    std::memcpy(table.data.data(), source.data, table.data.size());
    table.source = source;
    table.source.data = table.data.data();
    checkpoint_.release(name);
    return table;
  }

  /// kv_b_proj [heads * (nope + v), kv_lora], taken apart by head through strides, without a copy.
  void kv_b(const ModelConfig& c, const std::string& name, AttentionWeights& out) {
    const std::int64_t head_rows = c.qk_nope_head_dim + c.v_head_dim;
    const auto whole = open(name, c.num_heads * head_rows, c.kv_lora_rank);
    if (!status_.ok()) return;
    const auto element = static_cast<std::int64_t>(kernels::weight_size(whole.type));
    for (std::int64_t head = 0; head < c.num_heads && status_.ok(); ++head) {
      const auto* start = static_cast<const std::byte*>(whole.data) +
                          head * head_rows * c.kv_lora_rank * element;
      const WeightSource uk = {start, whole.type, c.kv_lora_rank, c.qk_nope_head_dim,
                               1, c.kv_lora_rank};
      const WeightSource uv = {start + c.qk_nope_head_dim * c.kv_lora_rank * element, whole.type,
                               c.v_head_dim, c.kv_lora_rank, c.kv_lora_rank, 1};
      out.w_uk.push_back(pack(name, uk, absorbed_options()));
      out.w_uv.push_back(pack(name, uv, absorbed_options()));
    }
    checkpoint_.release(name);
  }

 private:
  TensorView tensor(const std::string& name, std::initializer_list<std::int64_t> shape) {
    if (!status_.ok()) return {};
    auto view = checkpoint_.tensor(name, kWeightDTypes, {shape.begin(), shape.size()});
    if (!view) {
      status_ = view.error();
      return {};
    }
    return *view;
  }

  WeightSource open(const std::string& name, std::int64_t n, std::int64_t k) {
    const auto view = tensor(name, {n, k});
    const auto type = view.dtype == DType::kF32 ? WeightType::kF32 : WeightType::kBf16;
    const std::byte* data = view.bytes.data();
    // The format lets a tensor begin anywhere; nearly all writers align it.
    if (reinterpret_cast<std::uintptr_t>(data) % kernels::weight_size(type) != 0) {
      aligned_ = Buffer(view.bytes.size());
      std::memcpy(aligned_.data(), data, view.bytes.size());
      data = aligned_.data();
    }
    return kernels::dense_source(data, type, n, k);
  }

  PackedMatrix pack(const std::string& name, const WeightSource& source,
                    const PackOptions& options) {
    if (!status_.ok()) return {};
    auto packed = kernels::pack_matrix(numerics_, source, options);
    if (packed) return std::move(*packed);
    status_ = Error{packed.error().code,
                    "packing the tensor " + name + ": " + packed.error().message};
    return {};
  }

  const Checkpoint& checkpoint_;
  Numerics numerics_;
  Buffer aligned_;  // the tensor at hand, if its file has it on an odd address
  Status status_;
};

AttentionWeights read_attention(WeightReader& in, const ModelConfig& c, std::int32_t layer) {
  const std::string a = layer_prefix(layer) + "self_attn.";
  const std::int64_t heads = c.num_heads, q_rows = heads * c.qk_head_dim();
  AttentionWeights w;
  w.input_norm = in.vector(layer_prefix(layer) + "input_layernorm.weight", c.hidden_size);
  if (c.q_lora_rank > 0) {
    w.q_a = in.matrix(a + "q_a_proj.weight", c.q_lora_rank, c.hidden_size);
    w.q_a_norm = in.vector(a + "q_a_layernorm.weight", c.q_lora_rank);
    w.q_b = in.matrix(a + "q_b_proj.weight", q_rows, c.q_lora_rank);
  } else {
    w.q_b = in.matrix(a + "q_proj.weight", q_rows, c.hidden_size);
  }
  w.kv_a = in.matrix(a + "kv_a_proj_with_mqa.weight", c.kv_row(), c.hidden_size);
  w.kv_a_norm = in.vector(a + "kv_a_layernorm.weight", c.kv_lora_rank);
  in.kv_b(c, a + "kv_b_proj.weight", w);
  w.o = in.matrix(a + "o_proj.weight", c.hidden_size, heads * c.v_head_dim, o_proj_options(c));
  return w;
}

MlpWeights read_mlp(WeightReader& in, const ModelConfig& c, const std::string& prefix,
                    std::int64_t width) {
  MlpWeights w;
  w.gate = in.matrix(prefix + "gate_proj.weight", width, c.hidden_size);
  w.up = in.matrix(prefix + "up_proj.weight", width, c.hidden_size);
  w.down = in.matrix(prefix + "down_proj.weight", c.hidden_size, width, down_proj_options(width));
  return w;
}

LayerWeights read_layer(WeightReader& in, const ModelConfig& c, std::int32_t layer) {
  const std::string mlp = layer_prefix(layer) + "mlp.";
  LayerWeights w;
  w.kind = c.layer_kind(layer);
  w.attention = read_attention(in, c, layer);
  w.post_attention_norm =
      in.vector(layer_prefix(layer) + "post_attention_layernorm.weight", c.hidden_size);
  if (w.kind == LayerKind::kDense) {
    w.mlp = read_mlp(in, c, mlp, c.intermediate_size);
    return w;
  }
  w.gate = in.matrix(mlp + "gate.weight", c.num_experts, c.hidden_size, gate_options());
  if (c.topk_method == TopkMethod::kNoAuxTc)
    w.gate_bias = in.vector(mlp + "gate.e_score_correction_bias", c.num_experts);
  if (c.num_shared_experts > 0)
    w.mlp = read_mlp(in, c, mlp + "shared_experts.", c.shared_intermediate_size());
  return w;
}

Error out_of_memory(const Checkpoint& checkpoint) {
  return resource_exhausted("loading weights from " + checkpoint.folder() +
                            " ran out of memory; give this worker less of the model");
}

}  // namespace

Result<std::shared_ptr<const ShardWeights>> load_shard(const Checkpoint& checkpoint,
                                                       Numerics numerics, std::int32_t first,
                                                       std::int32_t last) {
  const ModelConfig& c = checkpoint.config();
  if (first < 0 || first >= last || last > c.num_layers)
    return invalid_argument("a shard needs a range of layers within the model's " +
                            std::to_string(c.num_layers) + ", but was asked for " +
                            std::to_string(first) + " to " + std::to_string(last));
  try {
    WeightReader in(checkpoint, numerics);
    auto shard = std::make_shared<ShardWeights>();
    shard->first = first;
    shard->last = last;
    if (first == 0)
      shard->embedding = in.embedding("model.embed_tokens.weight", c.vocab_size, c.hidden_size);
    for (std::int32_t layer = first; layer < last && in.status().ok(); ++layer)
      shard->layers.push_back(read_layer(in, c, layer));
    if (last == c.num_layers) {
      shard->final_norm = in.vector("model.norm.weight", c.hidden_size);
      shard->head =
          in.matrix(c.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight",
                    c.vocab_size, c.hidden_size);
    }
    if (!in.status().ok()) return in.status().error();
    return std::shared_ptr<const ShardWeights>(std::move(shard));
  } catch (const std::bad_alloc&) {
    return out_of_memory(checkpoint);
  }
}

Result<std::shared_ptr<const ExpertWeights>> load_expert(const Checkpoint& checkpoint,
                                                         Numerics numerics, std::int32_t layer,
                                                         std::int32_t expert) {
  const ModelConfig& c = checkpoint.config();
  if (layer < 0 || layer >= c.num_layers || c.layer_kind(layer) != LayerKind::kExperts ||
      expert < 0 || expert >= c.num_experts)
    return invalid_argument("layer " + std::to_string(layer) + " has no routed expert " +
                            std::to_string(expert));
  try {
    WeightReader in(checkpoint, numerics);
    const std::string p = expert_prefix(layer, expert);
    auto weights = std::make_shared<ExpertWeights>();
    weights->mlp.gate = in.matrix(p + "gate_proj.weight", c.moe_intermediate_size, c.hidden_size);
    weights->mlp.up = in.matrix(p + "up_proj.weight", c.moe_intermediate_size, c.hidden_size);
    weights->mlp.down = in.matrix(p + "down_proj.weight", c.hidden_size, c.moe_intermediate_size);
    if (!in.status().ok()) return in.status().error();
    return std::shared_ptr<const ExpertWeights>(std::move(weights));
  } catch (const std::bad_alloc&) {
    return out_of_memory(checkpoint);
  }
}

}  // namespace troupe
