#pragma once

#include <atomic>
#include <span>
#include <string>
#include <vector>

#include "model/tensor_proofs.h"

namespace troupe::testing {

/// What the storage says of these tensors, in the order of the files.
inline Result<std::vector<TensorProof>> proofs_of(const Checkpoint& checkpoint,
                                                  std::span<const std::string> tensors,
                                                  const std::atomic<bool>* cancelled = nullptr) {
  std::vector<TensorProof> read;
  if (auto status = read_proofs(checkpoint, tensors, read, cancelled); !status)
    return status.error();
  return read;
}

}  // namespace troupe::testing
