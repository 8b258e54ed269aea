#include "model/placement/stages.h"

#include <algorithm>
#include <limits>

namespace troupe {
namespace {

/// The ends (excluded) of `parts` contiguous, non-empty ranges whose heaviest is as light as can
/// be. Dynamic programming over (ranges, layers); the best cut of each state is where the growing
/// weight before it meets the shrinking one after it, so that a binary search finds it.
std::vector<std::size_t> cut_evenly(const std::vector<std::uint64_t>& weights, std::size_t parts) {
  const std::size_t n = weights.size();
  std::vector<std::uint64_t> sum(n + 1, 0);
  for (std::size_t i = 0; i < n; ++i) sum[i + 1] = sum[i] + weights[i];
  std::vector<std::uint64_t> best = sum;  // best[i]: the first i layers in `part` ranges
  std::vector<std::vector<std::size_t>> cuts(parts + 1, std::vector<std::size_t>(n + 1, 0));
  for (std::size_t part = 2; part <= parts; ++part) {
    std::vector<std::uint64_t> next(n + 1, std::numeric_limits<std::uint64_t>::max());
    for (std::size_t i = part; i <= n; ++i) {
      std::size_t low = part - 1, high = i - 1;  // cuts that leave no range empty
      while (low < high) {
        const std::size_t middle = (low + high) / 2;
        if (best[middle] >= sum[i] - sum[middle])
          high = middle;
        else
          low = middle + 1;
      }
      for (const std::size_t cut : {low, low > part - 1 ? low - 1 : low}) {
        const std::uint64_t heaviest = std::max(best[cut], sum[i] - sum[cut]);
        if (heaviest < next[i]) {
          next[i] = heaviest;
          cuts[part][i] = cut;
        }
      }
    }
    best = std::move(next);
  }
  std::vector<std::size_t> ends(parts);
  std::size_t end = n;
  for (std::size_t part = parts; part >= 1; --part) {
    ends[part - 1] = end;
    end = cuts[part][end];
  }
  return ends;
}

}  // namespace

std::vector<std::uint64_t> layer_weights(const ModelCosts& model) {
  std::vector<std::uint64_t> bytes;
  for (const auto& layer : model.layers) bytes.push_back(layer.bytes);
  bytes.front() += model.embedding_bytes;
  bytes.back() += model.head_bytes;
  return bytes;
}

std::vector<Stage> make_stages(const PlacementInput& input) {
  const auto& model = input.model;
  const auto weights = layer_weights(model);
  const auto ends =
      cut_evenly(weights, static_cast<std::size_t>(input.engine.pipeline_parallel_size));
  std::vector<Stage> stages;
  std::size_t first = 0;
  for (const std::size_t end : ends) {
    Stage stage;
    stage.first = static_cast<std::int32_t>(first);
    stage.last = static_cast<std::int32_t>(end) - 1;
    for (std::size_t i = first; i < end; ++i) stage.weight_bytes += weights[i];
    stage.block_bytes = kv_block_bytes(input, stage.first, stage.last);
    stage.sequence_bytes = saturating_mul(
        stage.block_bytes, ceil_div(input.engine.max_model_len, input.engine.block_size));
    if (input.compute) stage.compute_bytes = input.compute->shard(stage.first, stage.last);
    stages.push_back(stage);
    first = end;
  }
  // All shards of a replica keep the same tokens: a stage of few layers does not fill its share.
  std::uint64_t heaviest = 1;
  for (const Stage& stage : stages) heaviest = std::max(heaviest, stage.block_bytes);
  const std::uint64_t blocks = input.engine.kv_cache_memory / heaviest;
  for (Stage& stage : stages)
    stage.least_kv = std::max(blocks * stage.block_bytes, stage.sequence_bytes);
  return stages;
}

}  // namespace troupe
