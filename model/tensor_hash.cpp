#include "model/tensor_hash.h"

#include <algorithm>

#include "runtime/limits.h"

namespace troupe {

TensorHash::TensorHash(const TensorInfo& info, SplitAxis axis) : run_(info.bytes) {
  constexpr std::uint64_t kEighths = limits::kSumSlices;
  std::uint64_t parts = 1;
  if (axis != SplitAxis::kNone && info.shape.size() == 2) {
    const auto rows = static_cast<std::uint64_t>(info.shape[0]);
    const auto columns = static_cast<std::uint64_t>(info.shape[1]);
    const std::uint64_t split = axis == SplitAxis::kRows ? rows : columns;
    if (split % kEighths == 0 && info.bytes > 0) {
      parts = kEighths;
      run_ = (axis == SplitAxis::kRows ? info.bytes : info.bytes / rows) / kEighths;
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
