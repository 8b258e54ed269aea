#pragma once

#include <atomic>
#include <span>
#include <string>
#include <vector>

#include "model/checkpoint.h"
#include "runtime/result.h"
#include "runtime/tensor_proof.h"

namespace troupe {

/// Reads these tensors from the storage, past the page cache: with O_DIRECT where the file system
/// has it, else after asking the system to forget the cached pages. What they are stored as is
/// added to `read`, in the order of the files, without `packed`; what was read before an error too.
/// kNotFound for a tensor that the checkpoint lacks, kCancelled soon after `cancelled` is set.
Status read_proofs(const Checkpoint& checkpoint, std::span<const std::string> tensors,
                   std::vector<TensorProof>& read, const std::atomic<bool>* cancelled = nullptr);

}  // namespace troupe
