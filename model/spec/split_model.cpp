#include "model/spec/split_model.h"

#include <algorithm>
#include <functional>

namespace troupe {
namespace {

/// A stretch of what is split.
struct Stretch {
  std::int64_t first = 0, count = 0;
};

Stretch stretch_of(std::int64_t count, TensorRank rank, std::uint32_t ways) {
  const auto part = static_cast<std::int64_t>(part_of(rank, ways));
  const std::int64_t first = count * part / ways;
  return {first, count * (part + 1) / ways - first};
}

/// Two codes of four bits share a byte.
bool cuts_bytes(const WeightSpec& w, std::int64_t k) {
  return w.format != StoredFormat::kPlain && w.group > 0 && k % 2 != 0;
}

/// The most parts that the product's slices can be dealt to.
std::uint32_t ways_of(const std::vector<WeightSpec>& weights, WeightRole role, TensorRank rank) {
  const auto sum = std::find_if(weights.begin(), weights.end(),
                                [&](const WeightSpec& w) { return w.role == role; });
  if (sum == weights.end()) return 1;
  std::uint32_t ways = rank.size;
  while (ways > static_cast<std::uint32_t>(sum->slices) || cuts_bytes(*sum, sum->k / ways))
    ways /= 2;
  return ways;
}

/// Heads of queries must read whole heads of keys, all the same number of them.
std::uint32_t attention_ways(const LayerSpec& layer, TensorRank rank) {
  std::uint32_t ways = ways_of(layer.weights, WeightRole::kO, rank);
  const auto heads = static_cast<std::uint32_t>(layer.attention.kv_heads);
  if (layer.attention.kind == AttentionKind::kMla) return ways;
  while (heads % ways != 0 && ways % heads != 0) ways /= 2;
  return ways;
}

void take_outputs(WeightSpec& w, Stretch part) {
  w.part_of = w.n;
  w.part_first = part.first;
  w.n = part.count;
}

/// Of a vector, too.
void take_inputs(WeightSpec& w, Stretch part) {
  w.split = SplitAxis::kInputs;
  w.part_of = w.k;
  w.part_first = part.first;
  w.k = part.count;
}

Stretch times(Stretch heads, std::int64_t of_each) {
  return {heads.first * of_each, heads.count * of_each};
}

void split_attention(LayerSpec& layer, TensorRank rank) {
  AttentionSpec& a = layer.attention;
  a.ways = attention_ways(layer, rank);
  if (a.ways == 1) return;
  const bool mla = a.kind == AttentionKind::kMla;
  const Stretch heads = stretch_of(a.heads, rank, a.ways);
  const std::int64_t group = a.heads / a.kv_heads;
  const Stretch keys = {heads.first / group, std::max<std::int64_t>(heads.count / group, 1)};
  const std::int64_t q_dim = mla ? a.nope + a.rope : a.qk_dim, o_dim = mla ? a.v_head : a.v_dim;
  for (WeightSpec& w : layer.weights) switch (w.role) {
      case WeightRole::kQb:
      case WeightRole::kQ:
        take_outputs(w, times(heads, q_dim));
        break;
      case WeightRole::kKvB:
        take_outputs(w, times(heads, a.nope + a.v_head));
        break;
      case WeightRole::kK:
        take_outputs(w, times(keys, a.qk_dim));
        break;
      case WeightRole::kV:
        take_outputs(w, times(keys, a.v_dim));
        break;
      case WeightRole::kQBias:
        take_inputs(w, times(heads, a.qk_dim));
        break;
      case WeightRole::kKBias:
        take_inputs(w, times(keys, a.qk_dim));
        break;
      case WeightRole::kVBias:
        take_inputs(w, times(keys, a.v_dim));
        break;
      case WeightRole::kSinks:
        take_inputs(w, heads);
        break;
      case WeightRole::kO:
        take_inputs(w, times(heads, o_dim));
        w.slices /= static_cast<int>(a.ways);
        break;
      default:
        break;
    }
  a.heads = static_cast<std::int32_t>(heads.count);
  if (mla) return;
  a.kv_heads = static_cast<std::int32_t>(keys.count);
  layer.kv = {{static_cast<std::int32_t>(keys.count * a.qk_dim)},
              {static_cast<std::int32_t>(keys.count * a.v_dim)}};
}

void split_mlp(LayerSpec& layer, TensorRank rank) {
  layer.inner_ways = ways_of(layer.weights, WeightRole::kDown, rank);
  if (layer.inner_ways == 1) return;
  const Stretch inner = stretch_of(layer.inner, rank, layer.inner_ways);
  for (WeightSpec& w : layer.weights) {
    if (w.role == WeightRole::kGate || w.role == WeightRole::kUp) take_outputs(w, inner);
    if (w.role != WeightRole::kDown) continue;
    take_inputs(w, inner);
    w.slices /= static_cast<int>(layer.inner_ways);
  }
  layer.inner = static_cast<std::int32_t>(inner.count);
}

}  // namespace

ModelSpec split_model(const ModelSpec& whole, TensorRank rank) {
  ModelSpec model = whole;
  model.rank = rank;
  if (rank.alone()) return model;
  for (LayerSpec& layer : model.layers) {
    split_attention(layer, rank);
    split_mlp(layer, rank);
  }
  while (model.vocab_ways * 2 <= rank.size &&
         model.vocab_ways * 2 <= static_cast<std::uint32_t>(model.vocab))
    model.vocab_ways *= 2;
  for (auto* ends : {&model.first, &model.last})
    for (WeightSpec& w : *ends)
      if (w.role == WeightRole::kEmbedding || w.role == WeightRole::kHead)
        take_outputs(w, stretch_of(model.vocab, rank, model.vocab_ways));
  return model;
}

std::vector<ModelSpec> split_into(const ModelSpec& whole, std::uint32_t size) {
  std::vector<ModelSpec> ranks;
  for (std::uint32_t rank = 0; rank < size; ++rank)
    ranks.push_back(split_model(whole, TensorRank{rank, size}));
  return ranks;
}

}  // namespace troupe
