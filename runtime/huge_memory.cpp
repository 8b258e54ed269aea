#include "runtime/huge_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <iterator>
#include <memory>
#include <new>

namespace troupe {
namespace {

/// Of address space; memory comes as it is touched. So large that the huge page which its last run
/// leaves half empty does not count.
constexpr std::size_t kChunkBytes = 1u << 30;

constexpr std::size_t round_up(std::size_t x, std::size_t to) { return (x + to - 1) / to * to; }

std::byte* on_page(std::byte* p, bool up) {
  const std::size_t past = reinterpret_cast<std::uintptr_t>(p) % kPageBytes;
  return past == 0 ? p : up ? p + (kPageBytes - past) : p - past;
}

/// To the system, what whole pages of [begin, end) hold. Locked pages would stay.
void forget(std::byte* begin, std::byte* end) {
  begin = on_page(begin, true);
  end = on_page(end, false);
  if (begin >= end) return;
  const auto bytes = static_cast<std::size_t>(end - begin);
  munlock(begin, bytes);
  madvise(begin, bytes, MADV_DONTNEED);
}

}  // namespace

HugeMemory& HugeMemory::of_process(int numa_node) {
  static std::mutex& mutex = *new std::mutex;
  static auto& memories = *new std::map<int, std::unique_ptr<HugeMemory>>;  // guarded by mutex
  const std::lock_guard lock(mutex);
  auto& memory = memories[numa_node];
  if (!memory) memory = std::make_unique<HugeMemory>(numa_node);
  return *memory;
}

HugeMemory::~HugeMemory() {
  for (const auto& [begin, bytes] : chunks_) munmap(begin, bytes);
}

std::byte* HugeMemory::take(std::size_t bytes) {
  if (bytes > SIZE_MAX / 2) throw std::bad_alloc();
  bytes = round_up(std::max(bytes, kLine), kLine);
  const std::lock_guard lock(mutex_);
  const auto fits = [&](const auto& run) { return run.second >= bytes; };
  auto found = std::find_if(free_.begin(), free_.end(), fits);
  if (found == free_.end()) {
    const std::size_t least = round_up(bytes, kHugePageBytes);
    // Address space may be short where memory is not.
    if (!add_chunk(std::max(least, kChunkBytes)) && !add_chunk(least)) throw std::bad_alloc();
    found = std::find_if(free_.begin(), free_.end(), fits);
  }
  const auto [begin, size] = *found;
  if (size > bytes) free_.emplace_hint(found, begin + bytes, size - bytes);
  free_.erase(begin);
  return begin;
}

void HugeMemory::give_back(std::byte* run, std::size_t bytes) {
  bytes = round_up(std::max(bytes, kLine), kLine);
  const std::lock_guard lock(mutex_);
  auto chunk = std::prev(chunks_.upper_bound(run));
  std::byte* const chunk_end = chunk->first + chunk->second;
  assert(run + bytes <= chunk_end);
  std::byte *begin = run, *end = run + bytes;
  const auto next = free_.lower_bound(run);
  if (next != free_.end() && next->first == end && end != chunk_end) {
    end += next->second;
    free_.erase(next);
  }
  const auto after = free_.lower_bound(run);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == begin && begin != chunk->first) {
      begin = before->first;
      free_.erase(before);
    }
  }
  if (begin == chunk->first && end == chunk_end) {
    munmap(begin, chunk->second);
    chunks_.erase(chunk);
    return;
  }
  free_.emplace(begin, static_cast<std::size_t>(end - begin));
  // Its first and last page may have been shared with what was free already.
  forget(std::max(begin, on_page(run, false)), std::min(end, on_page(run + bytes, true)));
}

std::size_t HugeMemory::mapped_bytes() const {
  const std::lock_guard lock(mutex_);
  std::size_t bytes = 0;
  for (const auto& [begin, size] : chunks_) bytes += size;
  return bytes;
}

/// Adjacent chunks stay two: a run is never cut across them.
bool HugeMemory::add_chunk(std::size_t bytes) {
  void* const p = mmap(nullptr, bytes + kHugePageBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return false;
  auto* const start = static_cast<std::byte*>(p);
  const std::size_t before =
      (kHugePageBytes - reinterpret_cast<std::uintptr_t>(p) % kHugePageBytes) % kHugePageBytes;
  if (before > 0) munmap(start, before);
  munmap(start + before + bytes, kHugePageBytes - before);
  madvise(start + before, bytes, MADV_HUGEPAGE);  // without them all is the same, only slower
  if (numa_node_ != kAnyNumaNode) place_pages(start + before, bytes, numa_node_);  // the same
  chunks_.emplace(start + before, bytes);
  free_.emplace(start + before, bytes);
  return true;
}

}  // namespace troupe
