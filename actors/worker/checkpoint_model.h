#pragma once

#include "actors/worker/model_sizes.h"
#include "model/config.h"

namespace troupe {

/// The model of a checkpoint in the process's folder.
class CheckpointModel final : public ModelSizes {
 public:
  explicit CheckpointModel(const ModelConfig& config) : config_(config) {}
  const ModelConfig& config() const { return config_; }

  std::uint64_t expert_bytes(Numerics numerics) const override;
  std::uint64_t shard_bytes(Numerics numerics, const LayerRange& layers) const override;
  std::uint64_t cache_bytes(Numerics numerics, const LayerRange& layers, std::int32_t blocks,
                            std::int32_t block_size) const override;
  std::uint64_t row_bytes(Numerics numerics) const override;

 private:
  const ModelConfig config_;
};

}  // namespace troupe
