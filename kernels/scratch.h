#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace troupe::kernels {

/// A bump arena for the temporaries of one compute thread, in a device's memory. It grows while it
/// meets its largest use and never allocates again after that.
///
///     Scratch::Scope scope(*scratch);          // everything taken below is given back at its end
///     float* t = scratch->take<float>(rows * columns);
///
/// Memory is 64-byte aligned and not cleared. Under the address sanitizer what is not taken may not
/// be touched.
class Scratch {
 public:
  /// Memory of that many bytes, on a boundary of 64, that goes when nobody holds it.
  using Memory = std::function<std::shared_ptr<std::byte>(std::size_t bytes)>;
  /// What is taken is used before it is given back; or, where there is `settle`, in that order but
  /// later, at the latest when that returns.
  explicit Scratch(Memory memory, std::function<void()> settle = {})
      : memory_(std::move(memory)), settle_(std::move(settle)) {}
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  class Scope {
   public:
    explicit Scope(Scratch& scratch)
        : scratch_(scratch), block_(scratch.block_), used_(scratch.used_) {}
    ~Scope() { scratch_.rewind(block_, used_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Scratch& scratch_;
    std::size_t block_, used_;
  };

  /// Uninitialised room for `count` values. Throws std::bad_alloc when memory is short.
  template <class T>
  T* take(std::size_t count) {
    static_assert(alignof(T) <= 64);
    return static_cast<T*>(take_bytes(count * sizeof(T)));
  }

  /// Gives back all that is taken, outside of any scope.
  void reset() { rewind(0, 0); }

  /// Bytes held, for memory accounting.
  std::size_t bytes() const;

  /// It grows by this much, or by what does not fit.
  static constexpr std::size_t kGrowthBytes = 8u << 20;

 private:
  friend class Scope;
  struct Block {
    std::shared_ptr<std::byte> data;
    std::size_t bytes = 0;
  };
  void* take_bytes(std::size_t wanted);
  void rewind(std::size_t block, std::size_t used) noexcept;
  void merge();
  void grow(std::size_t bytes);
  void forbid(const void* from, std::size_t bytes) const;
  void allow(const void* from, std::size_t bytes) const;

  Memory memory_;
  const std::function<void()> settle_;
  std::vector<Block> blocks_;
  std::size_t block_ = 0;  // the block in use
  std::size_t used_ = 0;   // bytes used of it
};

}  // namespace troupe::kernels
