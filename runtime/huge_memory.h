#pragma once

#include <cstddef>
#include <map>
#include <mutex>

#include "runtime/numa.h"

namespace troupe {

inline constexpr std::size_t kPageBytes = 4096, kHugePageBytes = 2u << 20;

/// Memory for weights: chunks of huge pages, cut into runs that lie side by side, so that a matrix
/// of any size streams through few entries of the address cache and takes no more than its bytes.
/// Runs come and go one by one, as experts do: what goes returns to the system in pages of 4 KiB,
/// and a chunk with its last run. A page is first touched by who fills it. Thread-safe.
class HugeMemory {
 public:
  static constexpr std::size_t kLine = 64;  ///< runs begin and end on its multiples

  /// Of the process, in that NUMA node's memory while it has some (runtime/numa.h); never
  /// destroyed, as weights may outlive all else.
  static HugeMemory& of_process(int numa_node);

  explicit HugeMemory(int numa_node = kAnyNumaNode) : numa_node_(numa_node) {}
  ~HugeMemory();
  HugeMemory(const HugeMemory&) = delete;
  HugeMemory& operator=(const HugeMemory&) = delete;

  /// Anything may be in it. Throws std::bad_alloc when memory is short.
  std::byte* take(std::size_t bytes);
  /// A run as it was taken.
  void give_back(std::byte* run, std::size_t bytes);

  /// What chunks take of the address space.
  std::size_t mapped_bytes() const;

 private:
  using Runs = std::map<std::byte*, std::size_t>;  // begin, bytes
  bool add_chunk(std::size_t bytes);

  const int numa_node_;
  mutable std::mutex mutex_;
  Runs free_;    // guarded by mutex_; no two touch within a chunk
  Runs chunks_;  // guarded by mutex_
};

}  // namespace troupe
