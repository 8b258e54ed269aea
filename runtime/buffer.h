#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace troupe {

class HugeMemory;

/// Bytes on a 64-byte boundary, released on destruction; the start of every tensor and packed
/// weight.
class Buffer {
 public:
  Buffer() = default;
  /// Zeroed. Throws std::bad_alloc when memory is short.
  explicit Buffer(std::size_t bytes);
  /// For bytes that are all written before they are read: large buffers cost no pass over memory.
  static Buffer uninitialized(std::size_t bytes);

  /// The same, side by side with others of its kind in huge pages (HugeMemory), unless it is small:
  /// for what streams through the processor at every step. On the NUMA node of the thread's
  /// NumaScope.
  static Buffer in_huge_pages(std::size_t bytes);

  std::size_t size() const { return bytes_; }
  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(data_.get());
  }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_.get());
  }
  std::span<std::byte> span() { return {data_.get(), bytes_}; }
  std::span<const std::byte> span() const { return {data_.get(), bytes_}; }

 private:
  enum class Origin : std::uint8_t { kHeap, kMapped, kHugeMemory };
  struct Free {
    Origin origin;
    std::size_t bytes;  // as they were asked for there
    HugeMemory* huge;   // that it came from
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t bytes_ = 0;
};

/// Where a tensor's bytes are. Messages carry tensors by reference in a process.
enum class MemoryKind : std::uint8_t { kHost, kDevice, kRegistered };

/// An immutable, shared run of bytes: what the bulk lane carries beside a header.
struct Payload {
  std::shared_ptr<const void> owner;  ///< keeps the bytes alive
  std::span<const std::byte> bytes;
  MemoryKind memory = MemoryKind::kHost;

  bool empty() const { return bytes.empty(); }
  static Payload of(std::shared_ptr<const Buffer> buffer) {
    auto bytes = buffer->span();
    return {std::move(buffer), bytes, MemoryKind::kHost};
  }
};

}  // namespace troupe
