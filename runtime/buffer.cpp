#include "runtime/buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace troupe {

namespace {

/// From this size on, memory comes from the system page by page as it is first touched: a large KV
/// cache costs nothing before it is used.
constexpr std::size_t kMappedBytesMin = 4u << 20;

}  // namespace

Buffer::Buffer(std::size_t bytes) : Buffer(uninitialized(bytes)) {
  // Mapped memory is zero when it is first touched.
  if (data_ && data_.get_deleter().mapped_bytes == 0) std::memset(data_.get(), 0, bytes);
}

Buffer Buffer::uninitialized(std::size_t bytes) {
  Buffer buffer;
  buffer.bytes_ = bytes;
  if (bytes == 0) return buffer;
  const std::size_t rounded = (bytes + 63) / 64 * 64;
  if (rounded < bytes) throw std::bad_alloc();
  if (rounded >= kMappedBytesMin) {
    void* p = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    buffer.data_ = std::unique_ptr<std::byte, Free>(static_cast<std::byte*>(p), Free{rounded});
    return buffer;
  }
  auto* p = static_cast<std::byte*>(std::aligned_alloc(64, rounded));
  if (!p) throw std::bad_alloc();
  buffer.data_ = std::unique_ptr<std::byte, Free>(p, Free{0});
  return buffer;
}

void Buffer::Free::operator()(std::byte* p) const {
  if (mapped_bytes > 0)
    munmap(p, mapped_bytes);
  else
    std::free(p);
}

}  // namespace troupe
