#pragma once

#include <memory>
#include <span>

#include "kernels/accelerator.h"
#include "model/weights.h"

namespace troupe {

/// Moves what was packed on the host into a device's memory, in one piece, of which `tensors` tell.
/// It has arrived when this returns: what lies there has the digests of what was packed. Memory
/// that is let go just now is waited for. kCorrupt: the device holds something else. Throws
/// std::bad_alloc and kernels::AcceleratorFailed.
Status move_to(const std::shared_ptr<kernels::Accelerator>& device,
               std::span<kernels::Weight* const> weights, HeldTensors& tensors,
               const ReadGoesOn& goes_on = {});

/// The same for copies, of weights on the host or on another device of its kind; a layer is a
/// piece. kCorrupt may be the fault of what was copied, too.
Result<std::shared_ptr<const ShardWeights>> copy_to(
    const std::shared_ptr<kernels::Accelerator>& device, const ShardWeights& weights,
    const ReadGoesOn& goes_on = {});
Result<std::shared_ptr<const ExpertWeights>> copy_to(
    const std::shared_ptr<kernels::Accelerator>& device, const ExpertWeights& weights,
    const ReadGoesOn& goes_on = {});

}  // namespace troupe
