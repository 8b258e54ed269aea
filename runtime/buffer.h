#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace troupe {

class HugeMemory;
namespace kernels {
class Accelerator;
}

/// Where bytes are. Messages carry tensors by reference in a process.
enum class MemoryKind : std::uint8_t {
  kHost,
  kPinned,  ///< the host's as well, where copies of devices reach it
  kDevice,  ///< not the host's
};

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

  /// Memory that others gave, at least so many bytes of it, which copies of devices reach.
  static Buffer pinned(std::shared_ptr<std::byte> memory, std::size_t bytes);

  std::size_t size() const { return bytes_; }
  MemoryKind memory() const {
    return data_.get_deleter().pinned ? MemoryKind::kPinned : MemoryKind::kHost;
  }
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
  enum class Origin : std::uint8_t { kHeap, kMapped, kHugeMemory, kPinned };
  struct Free {
    Origin origin;
    std::size_t bytes;                  // as they were asked for there
    HugeMemory* huge;                   // that it came from
    std::shared_ptr<std::byte> pinned;  // goes with this
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t bytes_ = 0;
};

/// An immutable, shared run of bytes: what the bulk lane carries beside a header.
struct Payload {
  std::shared_ptr<const void> owner;  ///< keeps the bytes alive
  std::span<const std::byte> bytes;
  MemoryKind memory = MemoryKind::kHost;
  /// Of kDevice, for others in the process: where the bytes are, and whose memory it is. Of `bytes`
  /// the host then has what it has written itself, no more.
  const std::byte* there = nullptr;
  kernels::Accelerator* device = nullptr;

  bool empty() const { return bytes.empty(); }
  Payload part(std::size_t at, std::size_t count) const {
    return {owner, bytes.subspan(at, count), memory, there == nullptr ? nullptr : there + at,
            device};
  }
  static Payload of(std::shared_ptr<const Buffer> buffer) {
    const std::size_t all = buffer->size();
    return of(std::move(buffer), 0, all);
  }
  /// Some of them.
  static Payload of(std::shared_ptr<const Buffer> buffer, std::size_t at, std::size_t bytes) {
    const auto part = buffer->span().subspan(at, bytes);
    const MemoryKind memory = buffer->memory();
    return {std::move(buffer), part, memory};
  }
};

}  // namespace troupe
