#include "model/held_tensor.h"

#include <algorithm>

#include "runtime/buffer.h"
#include "runtime/limits.h"
#include "runtime/xxh3.h"

namespace troupe {

std::optional<bool> is_as_packed(const HeldTensor& tensor, const std::function<bool()>& goes_on) {
  if (tensor.memory.empty()) return true;
  Xxh3 hash;
  Buffer here(tensor.device ? limits::kProofSliceBytes : 0);
  for (std::span<const std::byte> left : tensor.memory)
    while (!left.empty()) {
      auto slice = left.first(std::min(left.size(), limits::kProofSliceBytes));
      left = left.subspan(slice.size());
      if (tensor.device) {
        const auto copy = here.span().first(slice.size());
        try {
          tensor.device->download(copy, slice.data());
        } catch (const kernels::AcceleratorFailed&) {
          return {};
        }
        slice = copy;
      }
      hash.add(slice);
      if (!goes_on()) return {};
    }
  return hash.digest() == tensor.proof.packed;
}

}  // namespace troupe
