#include "runtime/buffer.h"

#include <cstdlib>
#include <cstring>
#include <new>

namespace troupe {

Buffer::Buffer(std::size_t bytes) : Buffer(uninitialized(bytes)) {
  if (bytes != 0) std::memset(data_.get(), 0, bytes);
}

Buffer Buffer::uninitialized(std::size_t bytes) {
  Buffer buffer;
  buffer.bytes_ = bytes;
  if (bytes == 0) return buffer;
  const std::size_t rounded = (bytes + 63) / 64 * 64;
  if (rounded < bytes) throw std::bad_alloc();
  auto* p = static_cast<std::byte*>(std::aligned_alloc(64, rounded));
  if (!p) throw std::bad_alloc();
  buffer.data_.reset(p);
  return buffer;
}

void Buffer::Free::operator()(std::byte* p) const { std::free(p); }

}  // namespace troupe
