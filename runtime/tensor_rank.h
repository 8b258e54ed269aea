#pragma once

#include <compare>
#include <cstdint>

namespace troupe {

/// One of the devices that share the layers of a shard: tensor-parallel rank `rank` of `size`,
/// which is 1, 2, 4 or 8.
struct TensorRank {
  std::uint32_t rank = 0, size = 1;
  constexpr auto operator<=>(const TensorRank&) const = default;

  bool alone() const { return size == 1; }
};

/// Whether that many ranks may share a shard's layers.
constexpr bool is_tensor_size(std::int64_t size) {
  return size == 1 || size == 2 || size == 4 || size == 8;
}

}  // namespace troupe
