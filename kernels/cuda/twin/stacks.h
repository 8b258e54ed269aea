#pragma once

#include <sys/mman.h>

#include <boost/context/stack_context.hpp>

#include <cassert>
#include <cstddef>

#include "kernels/grid.h"
#include "runtime/huge_memory.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace troupe::kernels::cuda_twin {

inline constexpr std::size_t kStackBytes = 64u << 10;

/// A fiber leaves the address sanitizer's marks of its last frames on its stack.
inline void forget_marks([[maybe_unused]] const void* from, [[maybe_unused]] std::size_t bytes) {
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(from, bytes);
#endif
}

/// Stacks of all fibers: one mapping, a page without access under each.
class Stacks {
 public:
  Stacks()
      : base_(static_cast<std::byte*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    assert(base_ != MAP_FAILED);  // addresses only: pages come when they are touched
  }
  ~Stacks() {
    forget_marks(base_, static_cast<std::size_t>(guarded_) * kStep);
    munmap(base_, kBytes);
  }
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  /// For that many threads. A process may have some ten thousand mappings, which guards are.
  void guard(int threads) {
    for (; guarded_ < threads; ++guarded_)
      mprotect(base_ + guarded_ * kStep, kPageBytes, PROT_NONE);
  }

  boost::context::stack_context of(int thread) const {
    boost::context::stack_context stack;
    stack.size = kStackBytes;
    stack.sp = base_ + (thread + 1) * kStep;
    return stack;
  }

 private:
  static constexpr std::size_t kStep = kStackBytes + kPageBytes, kBytes = kThreadsMax * kStep;
  std::byte* base_;
  int guarded_ = 0;
};

/// Boost's allocator of one thread's stack.
struct StackOf {
  const Stacks* stacks;
  int thread;
  boost::context::stack_context allocate() const {
    const boost::context::stack_context stack = stacks->of(thread);
    forget_marks(static_cast<std::byte*>(stack.sp) - stack.size, stack.size);
    return stack;
  }
  void deallocate(const boost::context::stack_context&) const {}
};

}  // namespace troupe::kernels::cuda_twin
