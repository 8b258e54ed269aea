#include "runtime/alternate_stack.h"

#include <sys/auxv.h>
#include <sys/mman.h>

namespace troupe {
namespace {

/// Beside the registers that the kernel puts there, some ten KiB with AMX.
constexpr std::size_t kHandlerBytes = 64u << 10;

}  // namespace

AlternateStack::AlternateStack() : bytes_(kHandlerBytes + getauxval(AT_MINSIGSTKSZ)) {
  void* const memory =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  stack_t stack{};
  stack.ss_sp = memory;
  stack.ss_size = bytes_;
  if (sigaltstack(&stack, &before_) == 0)
    memory_ = memory;
  else
    munmap(memory, bytes_);
}

AlternateStack::~AlternateStack() {
  if (!memory_) return;
  sigaltstack(&before_, nullptr);
  munmap(memory_, bytes_);
}

}  // namespace troupe
