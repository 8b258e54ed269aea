#include "kernels/cuda/address_pool.h"

#include <algorithm>
#include <cassert>
#include <iterator>

namespace troupe::kernels {

AddressPool::AddressPool(std::size_t bytes, std::size_t step, std::size_t gap)
    : step_(step), gap_(gap) {
  assert(gap % step == 0);
  if (bytes >= step) add(0, bytes / step * step);
}

void AddressPool::add(std::size_t at, std::size_t bytes) {
  free_[at] = bytes;
  by_bytes_.emplace(bytes, at);
}

void AddressPool::remove(std::map<std::size_t, std::size_t>::iterator free) {
  const auto [first, last] = by_bytes_.equal_range(free->second);
  by_bytes_.erase(
      std::find_if(first, last, [&](const auto& f) { return f.second == free->first; }));
  free_.erase(free);
}

std::optional<AddressPool::Run> AddressPool::take(std::size_t bytes) {
  const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + step_ - 1) / step_ * step_;
  if (rounded < bytes) return std::nullopt;
  const std::size_t needed = rounded + gap_;
  const auto fits = by_bytes_.lower_bound(needed);
  if (fits == by_bytes_.end()) return std::nullopt;
  const auto [left, at] = *fits;
  remove(free_.find(at));
  if (left > needed) add(at + needed, left - needed);
  return Run{at, rounded};
}

void AddressPool::give_back(const Run& run) {
  std::size_t at = run.at, bytes = run.bytes + gap_;
  auto next = free_.lower_bound(at);
  if (next != free_.end() && next->first == at + bytes) {
    bytes += next->second;
    const auto joined = next++;
    remove(joined);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == at) {
      at = before->first;
      bytes += before->second;
      remove(before);
    }
  }
  add(at, bytes);
}

}  // namespace troupe::kernels
