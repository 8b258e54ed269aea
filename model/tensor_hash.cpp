#include "model/tensor_hash.h"

#include <algorithm>

#include "model/gguf/block_format.h"
#include "runtime/limits.h"

namespace troupe {

TensorHash::TensorHash(const StoredTensor& tensor) : run_(tensor.bytes) {
  constexpr std::uint64_t kEighths = limits::kSumSlices;
  std::uint64_t parts = 1;
  if (tensor.split != StoredAxis::kNone && tensor.shape.size() >= 2 && tensor.bytes > 0) {
    const auto rows = static_cast<std::uint64_t>(tensor.shape[0]);
    const auto columns = static_cast<std::uint64_t>(
        tensor.blocks ? tensor.shape[1] / tensor.blocks->numbers : tensor.shape[1]);
    const bool by_row = tensor.split == StoredAxis::kRows;
    if ((by_row ? rows : columns) % kEighths == 0) {
      parts = kEighths;
      run_ = (by_row ? tensor.bytes : tensor.bytes / rows) / kEighths;
    }
  }
  parts_.resize(parts);
}

void TensorHash::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto left = static_cast<std::size_t>(run_ - at_ % run_);
    const auto some = bytes.first(std::min(left, bytes.size()));
    parts_[at_ / run_ % parts_.size()].add(some);
    at_ += some.size();
    bytes = bytes.subspan(some.size());
  }
}

std::vector<Digest> TensorHash::digests() const {
  std::vector<Digest> digests;
  for (const Xxh3& part : parts_) digests.push_back(part.digest());
  return digests;
}

}  // namespace troupe
