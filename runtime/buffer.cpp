#include "runtime/buffer.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "runtime/huge_memory.h"

namespace troupe {

namespace {

/// From this size on, memory comes from the system page by page as it is first touched: a large KV
/// cache costs nothing before it is used.
constexpr std::size_t kMappedBytesMin = 2u << 20;
/// From this size on, in huge pages, but for the beginning: a KV cache that has hardly been used
/// holds no more than its first blocks.
constexpr std::size_t kMappedHugeBytesMin = 64u << 20;
constexpr std::size_t kSmallPagesBytes = 256u << 10;
/// The heap has room for less between what it holds.
constexpr std::size_t kHugeMemoryBytesMin = 64u << 10;

std::size_t whole_lines(std::size_t bytes) {
  const std::size_t rounded = (bytes + 63) / 64 * 64;
  if (rounded < bytes) throw std::bad_alloc();
  return rounded;
}

std::byte* map(std::size_t bytes) {
  void* const p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  return static_cast<std::byte*>(p);
}

/// Whole pages, so that the first huge one begins right behind the small ones.
std::byte* map_huge(std::size_t bytes) {
  bytes = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  std::byte* const from = map(bytes + kHugePageBytes);
  const auto past = (reinterpret_cast<std::uintptr_t>(from) + kSmallPagesBytes) % kHugePageBytes;
  const std::size_t before = past == 0 ? 0 : kHugePageBytes - past;
  if (before > 0) munmap(from, before);
  munmap(from + before + bytes, kHugePageBytes - before);
  madvise(from + before + kSmallPagesBytes, bytes - kSmallPagesBytes, MADV_HUGEPAGE);
  return from + before;
}

}  // namespace

Buffer::Buffer(std::size_t bytes) : Buffer(uninitialized(bytes)) {
  // Mapped memory is zero when it is first touched.
  if (data_ && data_.get_deleter().origin == Origin::kHeap) std::memset(data_.get(), 0, bytes);
}

Buffer Buffer::uninitialized(std::size_t bytes) {
  Buffer buffer;
  buffer.bytes_ = bytes;
  if (bytes == 0) return buffer;
  const std::size_t rounded = whole_lines(bytes);
  if (rounded >= kMappedBytesMin) {
    std::byte* const p = rounded >= kMappedHugeBytesMin ? map_huge(rounded) : map(rounded);
    buffer.data_ = {p, Free{Origin::kMapped, rounded, nullptr, nullptr}};
    return buffer;
  }
  auto* p = static_cast<std::byte*>(std::aligned_alloc(64, rounded));
  if (!p) throw std::bad_alloc();
  buffer.data_ = {p, Free{Origin::kHeap, rounded, nullptr, nullptr}};
  return buffer;
}

Buffer Buffer::in_huge_pages(std::size_t bytes) {
  if (bytes < kHugeMemoryBytesMin) return uninitialized(bytes);
  Buffer buffer;
  buffer.bytes_ = bytes;
  const std::size_t rounded = whole_lines(bytes);
  HugeMemory& memory = HugeMemory::of_process(NumaScope::current());
  buffer.data_ = {memory.take(rounded), Free{Origin::kHugeMemory, rounded, &memory, nullptr}};
  return buffer;
}

Buffer Buffer::pinned(std::shared_ptr<std::byte> memory, std::size_t bytes) {
  Buffer buffer;
  buffer.bytes_ = bytes;
  std::byte* const p = memory.get();
  buffer.data_ = {p, Free{Origin::kPinned, bytes, nullptr, std::move(memory)}};
  return buffer;
}

void Buffer::Free::operator()(std::byte* p) const {
  switch (origin) {
    case Origin::kHeap:
      std::free(p);
      return;
    case Origin::kMapped:
      munmap(p, bytes);
      return;
    case Origin::kHugeMemory:
      huge->give_back(p, bytes);
      return;
    case Origin::kPinned:
      return;
  }
}

}  // namespace troupe
