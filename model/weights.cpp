#include "model/weights.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "model/layer_weights.h"
#include "model/tensor_list.h"
#include "model/tensor_reader.h"
#include "runtime/bf16.h"
#include "runtime/xxh3.h"

namespace troupe {
namespace {

using kernels::PackedMatrix;
using kernels::PackOptions;
using kernels::WeightSource;
using kernels::WeightType;

/// Rows are read about so many bytes at a time: they stay in the cache between reading, digesting
/// and packing.
constexpr std::size_t kReadBytes = 1u << 20;

WeightType type_of(DType dtype) {
  return dtype == DType::kF32 ? WeightType::kF32 : WeightType::kBf16;
}

/// Reads and packs tensors, keeping the first error, so that a loader reads as a list of tensors.
class WeightLoader {
 public:
  WeightLoader(const Checkpoint& checkpoint, Numerics numerics, const ReadGoesOn& goes_on)
      : checkpoint_(checkpoint), numerics_(numerics), goes_on_(goes_on) {}

  const Status& status() const { return status_; }
  /// What was read, in order.
  HeldTensors take_tensors() { return std::move(tensors_); }

  /// A matrix [n, k] as it is stored.
  PackedMatrix matrix(const std::string& name, std::int64_t n, std::int64_t k,
                      const PackOptions& options = {}) {
    auto rows = open(name, {n, k});
    if (!rows) return {};
    const WeightType type = type_of(rows->dtype());
    auto packer = kernels::MatrixPacker::begin(numerics_, {type, n, k}, options);
    if (!packer) {
      fail(packing(name, packer.error()));
      return {};
    }
    Xxh3 packed;
    each_piece(*rows, kernels::kPanel, [&](const std::byte* data, std::int64_t count) {
      packed.add(packer->add(kernels::dense_source(data, type, count, k)));
      return Status();
    });
    PackedMatrix matrix = packer->take();
    finish(*rows, packed, {matrix.memory()});
    return matrix;
  }

  /// A vector [n], widened to float32.
  std::vector<float> vector(const std::string& name, std::int64_t n) {
    auto rows = open(name, {n});
    if (!rows) return {};
    std::vector<float> out(static_cast<std::size_t>(n));
    each_piece(*rows, 1, [&](const std::byte* data, std::int64_t) {
      if (rows->dtype() == DType::kF32) {
        std::memcpy(out.data(), data, rows->row_bytes());
        return Status();
      }
      for (std::size_t i = 0; i < out.size(); ++i) {
        Bf16 x;
        std::memcpy(&x, data + i * sizeof x, sizeof x);
        out[i] = to_float(x);
      }
      return Status();
    });
    Xxh3 packed;
    packed.add(std::as_bytes(std::span(out)));
    finish(*rows, packed, {std::as_bytes(std::span(out))});
    return out;
  }

  EmbeddingTable embedding(const std::string& name, std::int64_t n, std::int64_t k) {
    EmbeddingTable table;
    auto rows = open(name, {n, k});
    if (!rows) return table;
    table.data = Buffer::uninitialized(static_cast<std::size_t>(n) * rows->row_bytes());
    table.source = kernels::dense_source(table.data.data(), type_of(rows->dtype()), n, k);
    Xxh3 packed;
    std::byte* to = table.data.data();
    each_piece(*rows, 1, [&](const std::byte* data, std::int64_t count) {
      const std::span<std::byte> piece(to, static_cast<std::size_t>(count) * rows->row_bytes());
      std::memcpy(piece.data(), data, piece.size());
      packed.add(piece);
      to += piece.size();
      return Status();
    });
    finish(*rows, packed, {table.data.span()});
    return table;
  }

  /// kv_b_proj [heads * (nope + v), kv_lora], taken apart by head through strides.
  void kv_b(const ModelConfig& c, const std::string& name, AttentionWeights& out) {
    const std::int64_t head_rows = c.qk_nope_head_dim + c.v_head_dim;
    auto rows = open(name, {c.num_heads * head_rows, c.kv_lora_rank});
    if (!rows) return;
    const WeightType type = type_of(rows->dtype());
    Xxh3 packed;
    std::vector<std::span<const std::byte>> memory;
    const auto keep = [&](Result<PackedMatrix> part, std::vector<PackedMatrix>& parts) {
      if (!part) return Status(packing(name, part.error()));
      packed.add(part->memory());
      memory.push_back(part->memory());
      parts.push_back(std::move(*part));
      return Status();
    };
    each_piece(*rows, head_rows, [&](const std::byte* data, std::int64_t count) {
      Status kept;
      for (std::int64_t row = 0; row < count && kept; row += head_rows) {
        const std::byte* uk = data + static_cast<std::size_t>(row) * rows->row_bytes();
        const std::byte* uv =
            uk + static_cast<std::size_t>(c.qk_nope_head_dim) * rows->row_bytes();
        const WeightSource transposed = {uk, type, c.kv_lora_rank, c.qk_nope_head_dim,
                                         1,  c.kv_lora_rank};
        kept = keep(kernels::pack_matrix(numerics_, transposed, absorbed_options()), out.w_uk);
        if (!kept) break;
        const auto straight = kernels::dense_source(uv, type, c.v_head_dim, c.kv_lora_rank);
        kept = keep(kernels::pack_matrix(numerics_, straight, absorbed_options()), out.w_uv);
      }
      return kept;
    });
    finish(*rows, packed, std::move(memory));
  }

 private:
  using TakeRows = std::function<Status(const std::byte* rows, std::int64_t count)>;

  std::optional<TensorReader> open(const std::string& name,
                                   std::initializer_list<std::int64_t> shape) {
    if (!status_.ok()) return std::nullopt;
    auto rows = TensorReader::open(checkpoint_, name, {shape.begin(), shape.size()});
    if (rows) return std::move(*rows);
    fail(rows.error());
    return std::nullopt;
  }

  /// Hands out all rows, as many as fit into a piece, `granule` of them or a multiple at a time.
  void each_piece(TensorReader& rows, std::int64_t granule, const TakeRows& take) {
    const std::int64_t fit = static_cast<std::int64_t>(kReadBytes / rows.row_bytes());
    const std::int64_t most = std::max<std::int64_t>(fit / granule, 1) * granule;
    const auto bytes = [&](std::int64_t count) {
      return static_cast<std::size_t>(count) * rows.row_bytes();
    };
    const std::size_t needed = bytes(std::min(most, rows.rows_left()));
    if (piece_.size() < needed) piece_ = Buffer::uninitialized(needed);
    while (status_.ok() && rows.rows_left() > 0) {
      const std::int64_t count = std::min(most, rows.rows_left());
      if (goes_on_ && !goes_on_()) return fail(cancelled("Nobody wants these weights any more."));
      Status taken = rows.read(piece_.span().first(bytes(count)));
      if (taken.ok()) taken = take(piece_.data(), count);
      if (!taken.ok()) fail(taken.error());
    }
  }

  void finish(const TensorReader& rows, const Xxh3& packed,
              std::vector<std::span<const std::byte>> memory) {
    if (!status_.ok()) return;
    auto proof = rows.finish();
    if (!proof) return fail(proof.error());
    proof->packed = packed.digest();
    tensors_.push_back({std::move(*proof), std::move(memory)});
  }

  static Error packing(const std::string& name, const Error& error) {
    return {error.code, "packing the tensor " + name + ": " + error.message};
  }
  void fail(Error error) { status_ = std::move(error); }

  const Checkpoint& checkpoint_;
  const Numerics numerics_;
  const ReadGoesOn& goes_on_;
  Buffer piece_;  // rows as they are stored
  HeldTensors tensors_;
  Status status_;
};

AttentionWeights read_attention(WeightLoader& in, const ModelConfig& c, std::int32_t layer) {
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

MlpWeights read_mlp(WeightLoader& in, const ModelConfig& c, const std::string& prefix,
                    std::int64_t width) {
  MlpWeights w;
  w.gate = in.matrix(prefix + "gate_proj.weight", width, c.hidden_size);
  w.up = in.matrix(prefix + "up_proj.weight", width, c.hidden_size);
  w.down = in.matrix(prefix + "down_proj.weight", c.hidden_size, width, down_proj_options(width));
  return w;
}

LayerWeights read_layer(WeightLoader& in, const ModelConfig& c, std::int32_t layer) {
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
                                                       std::int32_t last,
                                                       const ReadGoesOn& goes_on) {
  const ModelConfig& c = checkpoint.config();
  if (first < 0 || first >= last || last > c.num_layers)
    return invalid_argument("a shard needs a range of layers within the model's " +
                            std::to_string(c.num_layers) + ", but was asked for " +
                            std::to_string(first) + " to " + std::to_string(last));
  try {
    WeightLoader in(checkpoint, numerics, goes_on);
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
    shard->tensors = in.take_tensors();
    if (last == c.num_layers && c.tie_word_embeddings) shard->tensors.back().second_form = true;
    return std::shared_ptr<const ShardWeights>(std::move(shard));
  } catch (const std::bad_alloc&) {
    return out_of_memory(checkpoint);
  }
}

Result<std::shared_ptr<const ExpertWeights>> load_expert(const Checkpoint& checkpoint,
                                                         Numerics numerics, std::int32_t layer,
                                                         std::int32_t expert,
                                                         const ReadGoesOn& goes_on) {
  const ModelConfig& c = checkpoint.config();
  if (layer < 0 || layer >= c.num_layers || c.layer_kind(layer) != LayerKind::kExperts ||
      expert < 0 || expert >= c.num_experts)
    return invalid_argument("layer " + std::to_string(layer) + " has no routed expert " +
                            std::to_string(expert));
  try {
    WeightLoader in(checkpoint, numerics, goes_on);
    const std::string p = expert_prefix(layer, expert);
    auto weights = std::make_shared<ExpertWeights>();
    weights->mlp.gate = in.matrix(p + "gate_proj.weight", c.moe_intermediate_size, c.hidden_size);
    weights->mlp.up = in.matrix(p + "up_proj.weight", c.moe_intermediate_size, c.hidden_size);
    weights->mlp.down = in.matrix(p + "down_proj.weight", c.hidden_size, c.moe_intermediate_size);
    if (!in.status().ok()) return in.status().error();
    weights->tensors = in.take_tensors();
    return std::shared_ptr<const ExpertWeights>(std::move(weights));
  } catch (const std::bad_alloc&) {
    return out_of_memory(checkpoint);
  }
}

}  // namespace troupe
