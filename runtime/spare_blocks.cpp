#include "runtime/spare_blocks.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace troupe {
namespace {

/// Sizes are few: what is asked for varies a little from time to time.
std::size_t size_for(std::size_t bytes) {
  constexpr std::size_t kLeast = 4096;
  const std::size_t step = std::max(kLeast, std::bit_floor(bytes) / 4);
  return std::max(bytes + step - 1, kLeast) / step * step;
}

}  // namespace

std::shared_ptr<std::byte> SpareBlocks::take(std::size_t bytes, const Make& make) {
  const std::size_t size = size_for(bytes);
  std::shared_ptr<std::byte> block;
  {
    const std::lock_guard lock(mutex_);
    if (auto& blocks = spare_[size]; !blocks.empty()) {
      block = std::move(blocks.back());
      blocks.pop_back();
      spare_bytes_ -= size;
    }
  }
  if (!block) block = make(size);
  if (!block) return nullptr;
  std::byte* const data = block.get();
  return {data, [self = shared_from_this(), block = std::move(block), size](auto) mutable {
            self->give_back(std::move(block), size);
          }};
}

/// What is too much goes outside of the lock, for that takes long as well.
void SpareBlocks::give_back(std::shared_ptr<std::byte> block, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (spare_bytes_ + bytes > bytes_max_) return;
  spare_bytes_ += bytes;
  spare_[bytes].push_back(std::move(block));
}

void SpareBlocks::clear() {
  decltype(spare_) gone;
  const std::lock_guard lock(mutex_);
  gone.swap(spare_);
  spare_bytes_ = 0;
}

}  // namespace troupe
