#include "model/spec/sizes.h"

#include <algorithm>
#include <cassert>

#include "model/spec/held_forms.h"
#include "runtime/ids.h"

namespace troupe {
namespace {

std::uint64_t bytes_of(const std::vector<WeightSpec>& weights, const AttentionSpec& attention,
                       Numerics numerics) {
  std::uint64_t bytes = 0;
  for (const WeightSpec& weight : weights) bytes += held_bytes(weight, attention, numerics);
  return bytes;
}

std::uint64_t expert_bytes(const LayerSpec& layer, Numerics numerics) {
  return bytes_of(layer.expert, layer.attention, numerics);
}

}  // namespace

std::uint64_t layer_bytes(const ModelSpec& spec, Numerics numerics, std::int32_t layer) {
  const LayerSpec& l = spec.layers[static_cast<std::size_t>(layer)];
  return bytes_of(l.weights, l.attention, numerics);
}

std::uint64_t shard_bytes(const ModelSpec& spec, Numerics numerics, std::int32_t first,
                          std::int32_t last) {
  assert(first >= 0 && first <= last && last < spec.num_layers());
  std::uint64_t bytes = 0;
  for (std::int32_t layer = first; layer <= last; ++layer)
    bytes += layer_bytes(spec, numerics, layer);
  if (first == 0) bytes += bytes_of(spec.first, {}, numerics);
  if (last + 1 == spec.num_layers()) bytes += bytes_of(spec.last, {}, numerics);
  return bytes;
}

std::uint64_t expert_bytes(const ModelSpec& spec, Numerics numerics) {
  std::uint64_t most = 0;
  for (const LayerSpec& layer : spec.layers) most = std::max(most, expert_bytes(layer, numerics));
  return most;
}

std::uint64_t kv_bytes_per_token_layer(const ModelSpec& spec, Numerics numerics) {
  std::int64_t most = 0;
  for (const LayerSpec& layer : spec.layers) {
    std::int64_t numbers = 0;
    for (const KvPoolSpec& pool : layer.kv) numbers += pool.row;
    most = std::max(most, numbers);
  }
  return static_cast<std::uint64_t>(most) * dtype_size(kv_type(numerics));
}

std::uint64_t model_bytes(const ModelSpec& spec, Numerics numerics) {
  std::uint64_t bytes = shard_bytes(spec, numerics, 0, spec.num_layers() - 1);
  for (const LayerSpec& layer : spec.layers)
    if (layer.has_experts())
      bytes +=
          static_cast<std::uint64_t>(layer.experts.gate.experts) * expert_bytes(layer, numerics);
  return bytes;
}

ModelCosts model_costs(const ModelSpec& spec, Numerics numerics) {
  ModelCosts costs;
  for (std::int32_t layer = 0; layer < spec.num_layers(); ++layer)
    costs.layers.push_back({layer_bytes(spec, numerics, layer),
                            spec.layers[static_cast<std::size_t>(layer)].has_experts()});
  costs.num_experts = spec.num_experts();
  costs.expert_bytes = expert_bytes(spec, numerics);
  costs.embedding_bytes = bytes_of(spec.first, {}, numerics);
  costs.head_bytes = bytes_of(spec.last, {}, numerics);
  costs.kv_bytes_per_token_layer = kv_bytes_per_token_layer(spec, numerics);
  costs.kv_bytes_per_token = sizeof(TokenId);
  return costs;
}

ModelCosts model_costs(std::span<const ModelSpec> ranks, Numerics numerics) {
  assert(!ranks.empty());
  ModelCosts most = model_costs(ranks.front(), numerics);
  for (const ModelSpec& rank : ranks.subspan(1)) {
    const ModelCosts costs = model_costs(rank, numerics);
    for (std::size_t layer = 0; layer < most.layers.size(); ++layer)
      most.layers[layer].bytes = std::max(most.layers[layer].bytes, costs.layers[layer].bytes);
    most.embedding_bytes = std::max(most.embedding_bytes, costs.embedding_bytes);
    most.head_bytes = std::max(most.head_bytes, costs.head_bytes);
    most.kv_bytes_per_token_layer =
        std::max(most.kv_bytes_per_token_layer, costs.kv_bytes_per_token_layer);
  }
  return most;
}

}  // namespace troupe
