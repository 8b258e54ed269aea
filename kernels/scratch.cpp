#include "kernels/scratch.h"

#include <algorithm>
#include <new>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace troupe::kernels {
namespace {

constexpr std::size_t kFirstBlockBytes = 1u << 20;

}  // namespace

/// What is not taken may not be touched: the address sanitizer sees to it.
void Scratch::forbid([[maybe_unused]] const void* from, [[maybe_unused]] std::size_t bytes) const {
#ifdef __SANITIZE_ADDRESS__
  if (!settle_) __asan_poison_memory_region(from, bytes);
#endif
}
void Scratch::allow([[maybe_unused]] const void* from, [[maybe_unused]] std::size_t bytes) const {
#ifdef __SANITIZE_ADDRESS__
  if (!settle_) __asan_unpoison_memory_region(from, bytes);
#endif
}

Scratch::~Scratch() {
  for (const Block& b : blocks_) allow(b.data.get(), b.bytes);
}

void Scratch::grow(std::size_t bytes) {
  blocks_.push_back({memory_(bytes), bytes});
  forbid(blocks_.back().data.get(), bytes);
}

/// Nothing is taken: from now on one block holds what all of them held together.
void Scratch::merge() {
  const std::size_t all = bytes();
  for (const Block& b : blocks_) allow(b.data.get(), b.bytes);
  blocks_.clear();
  if (settle_) settle_();
  try {
    grow(all);
  } catch (const std::bad_alloc&) {
    // There is no room for it in one piece, but may be for what is taken now.
  }
}

void* Scratch::take_bytes(std::size_t wanted) {
  if (block_ == 0 && used_ == 0 && blocks_.size() > 1) merge();
  const std::size_t bytes = (wanted + 63) & ~std::size_t{63};
  while (block_ < blocks_.size() && used_ + bytes > blocks_[block_].bytes) {
    ++block_;
    used_ = 0;
  }
  if (block_ == blocks_.size()) {
    const std::size_t last = blocks_.empty() ? kFirstBlockBytes / 2 : blocks_.back().bytes;
    grow(std::max(bytes, std::min(last * 2, kGrowthBytes)));
    used_ = 0;
  }
  void* at = blocks_[block_].data.get() + used_;
  used_ += bytes;
  allow(at, wanted);
  return at;
}

void Scratch::rewind(std::size_t block, std::size_t used) noexcept {
  block_ = block;
  used_ = used;
  for (std::size_t b = block; b < blocks_.size(); ++b) {
    const std::size_t kept = b == block ? used : 0;
    forbid(blocks_[b].data.get() + kept, blocks_[b].bytes - kept);
  }
}

std::size_t Scratch::bytes() const {
  std::size_t all = 0;
  for (const Block& b : blocks_) all += b.bytes;
  return all;
}

}  // namespace troupe::kernels
