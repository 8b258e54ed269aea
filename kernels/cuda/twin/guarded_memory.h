#pragma once

#include <cstddef>
#include <map>
#include <mutex>

#include "kernels/cuda/address_pool.h"
#include "runtime/huge_memory.h"

namespace troupe::kernels::cuda_twin {

/// The memory of the twin's GPU. Nobody can touch it but while it is open, which it is for kernels
/// and copies only: who does, ends the process with a word about it. What is taken ends where a
/// page without access begins.
///
///     | no access | run | no access | run | no access ...
///
/// Thread-safe.
class GuardedMemory {
 public:
  /// Address space for that many bytes; pages come when they are touched.
  explicit GuardedMemory(std::size_t bytes);
  ~GuardedMemory();
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  /// Not a number, as far as kPoisonBytes. Throws std::bad_alloc.
  std::byte* take(std::size_t bytes);
  void give_back(std::byte* run);

  /// Everything that is taken can be touched meanwhile; one at a time.
  class Open {
   public:
    explicit Open(GuardedMemory& memory);
    ~Open();
    Open(const Open&) = delete;

   private:
    GuardedMemory& memory_;
    std::lock_guard<std::mutex> gate_;
  };

  static constexpr std::size_t kPoisonBytes = 4u << 20;
  struct Region;

 private:
  void protect_all(int protection);

  void map_guard(std::size_t at, bool guard);
  /// The first page of all is none of a run's.
  std::byte* pages_of(const AddressPool::Run& run) const { return base_ + kPageBytes + run.at; }

  const std::size_t capacity_, span_;
  const int file_, nothing_;
  std::byte* const base_;
  Region& region_;
  std::mutex gate_;  // whoever has it opens
  std::mutex mutex_;
  AddressPool pages_;                             // guarded by mutex_, as what follows
  std::map<std::byte*, AddressPool::Run> taken_;  // by where users have them begin
  std::size_t used_ = 0;
};

}  // namespace troupe::kernels::cuda_twin
