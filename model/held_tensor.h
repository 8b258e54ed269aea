#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/accelerator.h"
#include "runtime/tensor_proof.h"

namespace troupe {

/// A tensor in memory: what it was when it was read, and where its packed bytes lie, in the order
/// of their digest. Lies within the weights that it belongs to. Scales are packed with their codes,
/// whose tensor has the digest: theirs has none, and no memory.
struct HeldTensor {
  TensorProof proof;
  std::vector<std::span<const std::byte>> memory;
  bool second_form = false;  ///< another piece of this model packs the same tensor otherwise
  std::shared_ptr<kernels::Accelerator> device = nullptr;  ///< whose `memory` is; null: the host's
};
using HeldTensors = std::vector<HeldTensor>;

/// Whether its bytes have the digest that they had when they were packed. None: `goes_on`, asked
/// after each MiB, said no; or the device that has them has failed, and so they serve nobody.
std::optional<bool> is_as_packed(const HeldTensor& tensor, const std::function<bool()>& goes_on);

}  // namespace troupe
