#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "actors/device/device.h"
#include "actors/expert_group/expert_pass.h"
#include "actors/layer_shard/expert_counter.h"
#include "actors/layer_shard/shard_compute.h"
#include "actors/worker/model_sizes.h"
#include "runtime/numerics.h"

namespace troupe {

struct ShardWeights;

/// What a shard computes with. The claims go with the compute.
struct ShardSpec {
  std::shared_ptr<const ModelSizes> model;  ///< as the node's WeightSource gave it
  Numerics numerics = Numerics::kReference;
  LayerRange layers;  ///< `last` is included
  std::int32_t blocks = 0;
  std::int32_t block_size = 16;
  bool last_stage = true;
  Device* device = nullptr;
  std::shared_ptr<const ShardWeights> weights;
  std::shared_ptr<ExpertCounter> counter;  ///< of what the gates choose
  Device::Claim cache_memory;
  std::shared_ptr<const Device::Claim> weight_memory;  ///< shared by shards of the same layers
};

/// What an expert group computes with.
struct PassSpec {
  std::shared_ptr<const ModelSizes> model;
  Numerics numerics = Numerics::kReference;
  Device* device = nullptr;
};
struct MadePass {
  std::unique_ptr<ExpertPass> pass;
  std::size_t row_bytes = 0;  ///< of one row of a question
};

/// Makes the arithmetic of a node's actors. In a process it is the model's (ModelFactory); the
/// simulation has its own. Called where WeightSource::build() runs, off the actors' threads: both
/// may take long.
class ComputeFactory {
 public:
  virtual ~ComputeFactory() = default;
  virtual Result<std::unique_ptr<ShardCompute>> make_shard(ShardSpec spec) = 0;
  virtual Result<MadePass> make_pass(const PassSpec& spec) = 0;
};

}  // namespace troupe
