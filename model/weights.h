#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "model/checkpoint.h"
#include "model/config.h"
#include "runtime/numerics.h"
#include "runtime/result.h"

namespace troupe {

struct ShardWeights;   // layers [first, last) without routed experts
struct ExpertWeights;  // one routed expert of one layer

/// Asked every MiB or so: whether what is being read is still wanted. Empty: it is.
using ReadGoesOn = std::function<bool()>;

/// Reads and packs the layers [first, last) without their routed experts; with the embedding if
/// first is 0, with final norm and head if last is num_layers. Each tensor is read once.
Result<std::shared_ptr<const ShardWeights>> load_shard(const Checkpoint& checkpoint,
                                                       Numerics numerics, std::int32_t first,
                                                       std::int32_t last,
                                                       const ReadGoesOn& goes_on = {});

/// Reads and packs one routed expert.
Result<std::shared_ptr<const ExpertWeights>> load_expert(const Checkpoint& checkpoint,
                                                         Numerics numerics, std::int32_t layer,
                                                         std::int32_t expert,
                                                         const ReadGoesOn& goes_on = {});

}  // namespace troupe
