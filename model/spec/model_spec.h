#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/moe_gate.h"
#include "kernels/rope.h"
#include "kernels/silu_mul.h"
#include "kernels/weight.h"
#include "runtime/ids.h"
#include "runtime/tensor_rank.h"

/// A model as data. One file an architecture makes it from config.json; checking, loading,
/// splitting, bytes, inventory, proofs and the planner's costs derive from it, and nothing else
/// knows a tensor's name.
namespace troupe {

/// What a weight is for: the forward pass asks for it by this.
enum class WeightRole : std::uint8_t {
  // Ends.
  kEmbedding, kFinalNorm, kHead,
  // Attention, both kinds.
  kInputNorm, kO, kOBias,
  // MLA (arXiv 2405.04434, sec. 2.1). kKvB is held as kUk and kUv, a head each.
  kQa, kQaNorm, kQb, kKvA, kKvANorm, kKvB, kUk, kUv,
  // Grouped queries.
  kQ, kK, kV, kQBias, kKBias, kVBias, kQNorm, kKNorm, kSinks,
  // Feed-forward: the dense MLP, or the shared experts.
  kPostNorm, kGate, kUp, kDown,
  // Routed experts.
  kRouter, kRouterBias, kRouterCorrection,
  kExpertGate, kExpertUp, kExpertDown, kExpertGateBias, kExpertUpBias, kExpertDownBias,
  kCount,
};
inline constexpr std::size_t kWeightRoles = static_cast<std::size_t>(WeightRole::kCount);

/// What tensor parallelism splits of W [outputs, inputs].
enum class SplitAxis : std::uint8_t { kNone, kOutputs, kInputs };

/// How a weight is used, and so held.
enum class Precision : std::uint8_t {
  kProduct,  ///< a matrix of the numerics' precision
  kFull,     ///< a matrix whose activations are not rounded
  kVector,   ///< float32 numbers: norms, biases
  kRows,     ///< the embedding
};

/// How checkpoints store a quantised matrix, as published.
enum class StoredFormat : std::uint8_t {
  kPlain,        ///< NAME.weight: F32, BF16, F16
  kFp8Blocks,    ///< NAME.weight F8_E4M3, NAME.weight_scale_inv F32 [ceil(n/128), ceil(k/128)]
  kFp8Channels,  ///< NAME.weight F8_E4M3, NAME.weight_scale [n, 1]
  kInt4Packed,   ///< NAME.weight_packed I32 [n, k/8], NAME.weight_scale [n, k/group]
  kInt4Awq,      ///< NAME.qweight I32 [k, n/8], NAME.qzeros, NAME.scales F16 [k/group, n]
  kMxfp4,        ///< NAME_blocks U8 [E, n, k/32, 16], NAME_scales U8 [E, n, k/32]
};

struct StoredForm {
  StoredFormat format = StoredFormat::kPlain;
  DType dtype = DType::kBf16;  ///< of the scales, or of the numbers
  std::int64_t group = 0;      ///< of int4 and MXFP4: columns that share a scale
  bool operator==(const StoredForm&) const = default;
};

/// Rows and columns that share a scale of kFp8Blocks.
inline constexpr std::int64_t kFp8Block = 128;

/// One weight: where it is in the checkpoint, what it looks like, how it may be split.
struct WeightSpec {
  WeightRole role = WeightRole::kCount;
  /// The module's name; the format adds ".weight" and the like. A plain one has its full name (with
  /// ".weight" or ".bias"). "*" stands for the number of the expert.
  std::string name;
  std::int64_t n = 1, k = 0;  ///< [n, k]; a vector is [1, k]
  Precision precision = Precision::kProduct;
  SplitAxis split = SplitAxis::kNone;
  int slices = 1;  ///< of its products' sums (kernels::PackOptions)
  StoredFormat format = StoredFormat::kPlain;
  DType dtype = DType::kBf16;  ///< of a plain weight's numbers, else of its scales
  std::int64_t group = 0;  ///< of int4 and MXFP4: columns that share a scale
  bool converts = false;   ///< it is one of the matrices that quantisation is for
  /// So many experts lie in one tensor, whose first axis counts them; 0: a tensor each.
  std::int32_t stacked = 0;
  /// Its rows (numbers of a vector) are `first_row`, `first_row + row_step`, ... of the tensor,
  /// which has `row_step` times as many (gate and up of gpt-oss alternate). Those that share a
  /// tensor follow each other.
  std::int64_t first_row = 0, row_step = 1;
  /// Of a tensor-parallel rank: it is `part_first` and on of the `part_of` outputs or inputs that
  /// the tensor has along `split`. 0: all of them.
  std::int64_t part_first = 0, part_of = 0;

  /// Of the tensor.
  std::int64_t stored_n() const { return is_part_of(SplitAxis::kOutputs) ? part_of : n; }
  std::int64_t stored_k() const { return is_part_of(SplitAxis::kInputs) ? part_of : k; }

  bool is_part_of(SplitAxis axis) const { return part_of > 0 && split == axis; }
};

enum class AttentionKind : std::uint8_t { kMla, kGrouped };

struct AttentionSpec {
  AttentionKind kind = AttentionKind::kMla;
  std::int32_t heads = 0;     ///< of queries
  std::int32_t kv_heads = 1;  ///< of keys and values; MLA: 1
  std::int32_t qk_dim = 0;    ///< of a key in the cache; MLA: kv_lora + rope
  std::int32_t v_dim = 0;     ///< of a value in the cache; MLA: kv_lora
  float scale = 1;
  std::int32_t window = 0;    ///< 0: all positions
  float norm_eps = 1e-6f;     ///< of the norms inside (MLA's latents, q_norm, k_norm)
  // MLA only.
  std::int32_t q_lora = 0;    ///< 0: queries come straight from the hidden state
  std::int32_t kv_lora = 0, nope = 0, rope = 0;
  std::int32_t v_head = 0;    ///< of a value when it has left the latent space
  std::uint32_t ways = 1;     ///< parts that tensor-parallel ranks make of it
  bool operator==(const AttentionSpec&) const = default;
};

/// One kind of row that a layer keeps per position.
struct KvPoolSpec {
  std::int32_t row = 0;  ///< numbers a position
  bool operator==(const KvPoolSpec&) const = default;
};

enum class FeedForwardKind : std::uint8_t { kDense, kExperts };

/// The routed experts of a layer.
struct ExpertsSpec {
  std::int32_t inner = 0;
  kernels::GateConfig gate;  ///< with their number and top_k
};

struct LayerSpec {
  AttentionSpec attention;
  FeedForwardKind feed_forward = FeedForwardKind::kDense;
  /// Width of the dense MLP, or of the shared experts as one MLP; 0: none.
  std::int32_t inner = 0;
  std::uint32_t inner_ways = 1;         ///< parts that tensor-parallel ranks make of that
  ExpertsSpec experts;                  ///< kExperts only
  std::vector<KvPoolSpec> kv;           ///< MLA: one; grouped: keys, values
  std::vector<WeightSpec> weights;      ///< without routed experts
  std::vector<WeightSpec> expert;       ///< of each routed expert
  bool has_experts() const { return feed_forward == FeedForwardKind::kExperts; }
};

/// Rotary angles: theta_i = base^(-2i / dim), then the scaling.
struct RopeSpec {
  enum class Scaling : std::uint8_t { kNone, kLinear, kYarn, kLlama3 };
  kernels::RopePairs pairs = kernels::RopePairs::kHalves;
  std::int32_t dim = 0;  ///< that turn, of a head's
  double theta = 10000.0;
  Scaling scaling = Scaling::kNone;
  double factor = 1.0;
  std::int32_t original_positions = 0;
  double beta_fast = 32.0, beta_slow = 1.0;  ///< YaRN
  bool truncate = true;                      ///< YaRN: bounds are rounded to whole pairs
  double magnitude = 1.0;                    ///< that cos and sin are multiplied with
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  ///< Llama 3
  /// Of each pair: its frequency is divided by it. GGUF has Llama 3's scaling so; empty: none.
  std::vector<float> factors;
  bool operator==(const RopeSpec&) const = default;
};

struct ModelSpec {
  std::string architecture;  ///< config.json's model_type
  std::int32_t hidden = 0;
  std::int32_t vocab = 0;
  std::int32_t positions_max = 0;
  float norm_eps = 1e-6f;
  kernels::GatedAct act;
  RopeSpec rope;
  std::vector<LayerSpec> layers;
  std::vector<WeightSpec> first;  ///< with the first layer: the embedding
  std::vector<WeightSpec> last;   ///< with the last: final norm, head
  /// In which its matrices may be stored, beside plain, whichever of them its config names.
  std::vector<StoredForm> forms;
  TensorRank rank;                ///< that this is the part of (split_model.h)
  std::uint32_t vocab_ways = 1;   ///< parts that the ranks make of the vocabulary
  std::vector<TokenId> eos_token_ids;  ///< as they are told: maybe beyond the vocabulary
  /// What the checkpoint has and is not loaded, for messages: MTP layers.
  std::int32_t mtp_layers = 0;

  std::int32_t num_layers() const { return static_cast<std::int32_t>(layers.size()); }
  /// Of any layer; 0: all are dense.
  std::int32_t num_experts() const;
  std::int32_t top_k() const;
  /// Groups that a gate chooses from before it chooses experts; 1: it has none.
  std::int32_t expert_groups() const;
};

/// "model.layers.3.mlp.experts.7.gate_proj" of one expert.
std::string name_of(const WeightSpec& spec, std::int32_t expert);

}  // namespace troupe
