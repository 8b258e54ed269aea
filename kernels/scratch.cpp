#include "kernels/scratch.h"

#include <algorithm>

namespace troupe::kernels {
namespace {
constexpr std::size_t kFirstBlockBytes = 1u << 20;
}

void* Scratch::take_bytes(std::size_t bytes) {
  bytes = (bytes + 63) & ~std::size_t{63};
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
  return at;
}

void Scratch::rewind(std::size_t block, std::size_t used) {
  block_ = block;
  used_ = used;
  // Nothing is in use: later uses find one block that holds what all of them held together.
  if (block == 0 && used == 0 && blocks_.size() > 1) {
    const std::size_t all = bytes();
    blocks_.clear();
    grow(all);
  }
}

std::size_t Scratch::bytes() const {
  std::size_t all = 0;
  for (const Block& b : blocks_) all += b.bytes;
  return all;
}

}  // namespace troupe::kernels
