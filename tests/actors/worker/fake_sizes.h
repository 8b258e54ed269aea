#pragma once

#include "actors/worker/model_sizes.h"

namespace troupe::testing {

/// A model whose pieces take round numbers of bytes.
struct FakeSizes final : ModelSizes {
  static constexpr std::uint64_t kExpert = 10, kLayer = 100, kCache = 1000, kRow = 8;

  std::uint64_t expert_bytes(Numerics) const override { return kExpert; }
  std::uint64_t shard_bytes(Numerics, const LayerRange& layers) const override {
    return kLayer * static_cast<std::uint64_t>(layers.last - layers.first + 1);
  }
  std::uint64_t cache_bytes(Numerics, const LayerRange&, std::int32_t,
                            std::int32_t) const override {
    return kCache;
  }
  std::uint64_t row_bytes(Numerics, std::uint32_t) const override { return kRow; }
};

}  // namespace troupe::testing
