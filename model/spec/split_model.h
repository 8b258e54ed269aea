#pragma once

#include <cstdint>
#include <vector>

#include "model/spec/model_spec.h"
#include "runtime/tensor_rank.h"

namespace troupe {

/// What one tensor-parallel rank has of a model: the same layers with fewer heads, narrower dense
/// MLPs and shared experts, and a part of the vocabulary; routed experts stay whole. Its forward
/// pass is that of any model, with a sum over the ranks where a whole one would go on.
///
/// A split follows the slices that a product is summed as (WeightSpec::slices), so the sums of
/// all ranks joined in their order have the bits of the whole. What cannot be cut into as many
/// parts as there are ranks (AttentionSpec::ways, LayerSpec::inner_ways, ModelSpec::vocab_ways) is
/// cut into as many as it can, and several ranks compute the same part. Keys and values of fewer
/// heads than parts lie on several ranks, as MLA's latents do on all.
ModelSpec split_model(const ModelSpec& whole, TensorRank rank);

/// What each of `size` ranks has, in their order.
std::vector<ModelSpec> split_into(const ModelSpec& whole, std::uint32_t size);

/// Which of `ways` equal parts this rank has; the first rank that has it speaks for it.
constexpr std::uint32_t part_of(TensorRank rank, std::uint32_t ways) {
  return rank.rank * ways / rank.size;
}
constexpr std::uint32_t speaker_of(std::uint32_t part, TensorRank rank, std::uint32_t ways) {
  return part * (rank.size / ways);
}

}  // namespace troupe
