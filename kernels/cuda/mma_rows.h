#pragma once

#include "kernels/cuda/device.h"

namespace troupe::kernels::TROUPE_CUDA_SPACE {

constexpr std::int32_t kMmaTile = 32;  ///< positions whose maximum is taken together

/// How attention's queries, keys and values lie in shared memory, in units of sixteen bytes. Rows
/// have an odd number of them, so that eight rows below each other lie in different banks.
struct Rows {
  int key = 0, value = 0;  ///< from a row to the next; no values: 0
  int stages = 1;          ///< tiles that there is room for

  static constexpr int kScores = 9, kWeights = 5;
  static constexpr std::int64_t kMost = 1 << 16;  ///< numbers of a key

  /// V3's queries and one tile of its keys, or two beside many queries.
  static constexpr int room(int queries) {
    return (queries + (queries > kMmaTile ? 2 : 1) * kMmaTile) * 73;
  }
  /// Nothing if they do not fit.
  static Rows of(int queries, std::int64_t k_dim, std::int64_t v_dim, bool shared) {
    Rows r;
    if (k_dim > kMost || v_dim > kMost) return {0, 0, 0};
    r.key = static_cast<int>(ceil_div(k_dim, 32) * 4 + 1);
    r.value = shared ? 0 : static_cast<int>(ceil_div(v_dim, 8) | 1);
    r.stages = std::clamp((room(queries) - queries * r.key) / r.tile(), 0, 2);
    return r;
  }
  constexpr int tile() const { return kMmaTile * (key + value); }
};

}  // namespace troupe::kernels::TROUPE_CUDA_SPACE
