#include "actors/replica/block_pool.h"

#include <cassert>

namespace troupe {

BlockPool::BlockPool(std::int32_t blocks) : total_(blocks) {
  assert(blocks >= 0);
  free_.reserve(static_cast<std::size_t>(blocks));
  for (std::int32_t block = blocks - 1; block >= 0; --block) free_.push_back(block);
}

void BlockPool::take(std::int32_t count, std::vector<std::int32_t>& table) {
  assert(count >= 0 && count <= free());
  for (; count > 0; --count) {
    table.push_back(free_.back());
    free_.pop_back();
  }
}

void BlockPool::give_back(std::vector<std::int32_t>& table) {
  free_.insert(free_.end(), table.begin(), table.end());
  table.clear();
  assert(free() <= total_);
}

}  // namespace troupe
