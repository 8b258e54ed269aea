#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "actors/worker/model_sizes.h"
#include "model/spec/model_spec.h"

namespace troupe {

/// The model of a checkpoint in the process's folder.
class CheckpointModel final : public ModelSizes {
 public:
  explicit CheckpointModel(std::shared_ptr<const ModelSpec> spec) : spec_(std::move(spec)) {}
  const std::shared_ptr<const ModelSpec>& spec() const { return spec_; }
  /// As a tensor-parallel rank has it.
  std::shared_ptr<const ModelSpec> spec(TensorRank rank) const;

  std::uint64_t expert_bytes(Numerics numerics) const override;
  std::uint64_t shard_bytes(Numerics numerics, const LayerRange& layers) const override;
  std::uint64_t cache_bytes(Numerics numerics, const LayerRange& layers, std::int32_t blocks,
                            std::int32_t block_size) const override;
  std::uint64_t row_bytes(Numerics numerics) const override;

 private:
  const std::shared_ptr<const ModelSpec> spec_;
  mutable std::mutex mutex_;
  mutable std::map<TensorRank, std::shared_ptr<const ModelSpec>> parts_;  // guarded by mutex_
};

}  // namespace troupe
