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
  Blocks gone;  // without the lock
  {
    const std::lock_guard lock(mutex_);
    if (const auto same = spare_.find(size); same != spare_.end()) {
      block = std::move(same->second.back().block);
      same->second.pop_back();
      if (same->second.empty()) spare_.erase(same);
      spare_bytes_ -= size;
    }
    gone = too_many();
  }
  gone.clear();
  if (!block) block = make(size);
  if (!block) return nullptr;
  std::byte* const data = block.get();
  return {data, [self = shared_from_this(), block = std::move(block), size](auto) mutable {
            self->give_back(std::move(block), size);
          }};
}

SpareBlocks::Blocks SpareBlocks::too_many() {
  Blocks gone;
  while (spare_bytes_ > bytes_max_) {
    const auto oldest = std::ranges::min_element(
        spare_, {}, [](const auto& entry) { return entry.second.front().since; });
    gone.push_back(std::move(oldest->second.front().block));
    oldest->second.pop_front();
    spare_bytes_ -= oldest->first;
    if (oldest->second.empty()) spare_.erase(oldest);
  }
  return gone;
}

void SpareBlocks::give_back(std::shared_ptr<std::byte> block, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  spare_bytes_ += bytes;
  spare_[bytes].push_back({returns_++, std::move(block)});
}

void SpareBlocks::clear() {
  decltype(spare_) gone;
  const std::lock_guard lock(mutex_);
  gone.swap(spare_);
  spare_bytes_ = 0;
}

}  // namespace troupe
