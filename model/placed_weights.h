#pragma once

#include <memory>

#include "kernels/accelerator.h"
#include "model/weights.h"

namespace troupe {

/// The same weights in a device's memory, in one piece, for its ops alone: they have no tensors to
/// look at. Waits until they are there. Throws std::bad_alloc and kernels::AcceleratorFailed.
std::shared_ptr<const ShardWeights> placed(const ShardWeights& weights,
                                           kernels::Accelerator& device);
std::shared_ptr<const ExpertWeights> placed(const ExpertWeights& weights,
                                            kernels::Accelerator& device);

}  // namespace troupe
