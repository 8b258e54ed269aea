#pragma once

#include <signal.h>

#include <cstddef>

namespace troupe {

/// While it lives, handlers that ask for it run on a stack of their own in the calling thread: a
/// thread whose own stack is used up can still say that it crashes. Installs no handler.
class AlternateStack {
 public:
  AlternateStack();
  ~AlternateStack();
  AlternateStack(const AlternateStack&) = delete;
  AlternateStack& operator=(const AlternateStack&) = delete;

 private:
  void* memory_ = nullptr;  // null: there is none
  std::size_t bytes_ = 0;
  stack_t before_{};
};

}  // namespace troupe
