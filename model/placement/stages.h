#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "model/placement/plan_placement.h"

namespace troupe {

constexpr std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

inline std::uint64_t saturating_mul(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<std::uint64_t>::max()
                                                : product;
}

inline std::uint64_t saturating_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<std::uint64_t>::max() : sum;
}

/// A range of layers that is one shard of every replica, and what it asks of its device.
struct Stage {
  std::int32_t first = 0;
  std::int32_t last = 0;  // included
  std::uint64_t weight_bytes = 0;
  std::uint64_t block_bytes = 0;     // of its KV cache
  std::uint64_t sequence_bytes = 0;  // of one sequence of max_model_len
  std::uint64_t least_kv = 0;        // what a shard cannot do without
  std::uint64_t compute_bytes = 0;   // beside them, where the input says what steps take
};

/// Weights of each layer's shard part, the embedding and the head with the outer ones.
std::vector<std::uint64_t> layer_weights(const ModelCosts& model);

/// --pipeline-parallel-size contiguous ranges with the least possible heaviest one, in bytes.
std::vector<Stage> make_stages(const PlacementInput& input);

}  // namespace troupe
