#pragma once

#include <cstring>
#include <type_traits>

#include "kernels/cuda/twin/machine.h"

/// What a thread of a kernel sees, as the twin gives it; kernels/cuda/device.h has what nvcc gets.
namespace troupe::kernels::cuda_twin {

/// Sixteen bytes that are loaded at once.
struct alignas(16) Quad {
  std::uint32_t words[4];
};

/// An array in shared memory: every access is noted.
template <class T>
class Shared {
 public:
  Shared(Machine& machine, std::byte* data) : machine_(&machine), data_(data) {}

  class Ref {
   public:
    Ref(Machine& machine, std::byte* at) : machine_(machine), at_(at) {}
    Ref(const Ref&) = delete;
    operator T() const {
      T value{};
      if (machine_.read_shared(at_, sizeof(T))) std::memcpy(&value, at_, sizeof value);
      return value;
    }
    const Ref& operator=(T value) const {
      if (machine_.write_shared(at_, sizeof(T))) std::memcpy(at_, &value, sizeof value);
      return *this;
    }
    const Ref& operator=(const Ref& other) const { return *this = static_cast<T>(other); }

   private:
    Machine& machine_;
    std::byte* at_;
  };
  Ref operator[](std::int64_t i) const { return {*machine_, address(i)}; }
  std::byte* address(std::int64_t i) const {
    return data_ + i * static_cast<std::int64_t>(sizeof(T));
  }

 private:
  Machine* machine_;
  std::byte* data_;
};

class Cta {
 public:
  explicit Cta(Machine& machine) : machine_(&machine) {}

  Machine& machine() const { return *machine_; }
  int thread() const { return machine_->thread(); }
  int lane() const { return thread() % 32; }
  int warp() const { return thread() / 32; }
  std::int64_t block_x() const { return machine_->block().x; }
  std::int64_t block_y() const { return machine_->block().y; }

  /// All threads of the CTA, at the same call.
  void sync(const Site& site = Site::current()) const { machine_->barrier(site); }

  /// The value that lane `from` brings; all lanes of the mask, at the same call.
  template <class T>
  T shuffle(std::uint32_t mask, T value, int from, const Site& site = Site::current()) const {
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    bits = machine_->shuffle(mask, bits, from, site);
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }

  /// `count` values from byte `at` of shared memory on.
  template <class T>
  Shared<T> shared(std::size_t at, std::size_t count) const {
    return {*machine_, machine_->shared(at, count * sizeof(T))};
  }

  /// A word of global memory that another CTA writes meanwhile, for whoever waits for it.
  std::uint32_t poll(const std::uint32_t* word, const Site& site = Site::current()) const {
    return machine_->poll(word, site);
  }

  /// From memory that nobody writes meanwhile.
  Quad load_quad(const void* from, const Site& site = Site::current()) const {
    machine_->load(from, sizeof(Quad), site);
    Quad quad;
    std::memcpy(&quad, from, sizeof quad);
    return quad;
  }

  /// Whether this CTA is the last of `count` that come to the same word, which is zero before the
  /// first of them and after the last, who sees all that the others wrote before they came. All
  /// threads, at the same call. Nobody waits for another CTA.
  bool last_of(std::uint32_t* came, std::uint32_t count,
               const Site& site = Site::current()) const {
    return machine_->last_of(came, count, site);
  }
  /// For the last one: what the others wrote. Four or sixteen bytes.
  template <class T>
  T load_joined(const T* from, const Site& site = Site::current()) const {
    static_assert(sizeof(T) == 4 || sizeof(T) == sizeof(Quad));
    machine_->load_joined(from, sizeof(T), site);
    return *from;
  }

 private:
  Machine* machine_;
};

}  // namespace troupe::kernels::cuda_twin
