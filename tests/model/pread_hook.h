#pragma once

#include <sys/types.h>

#include <functional>

/// Stands between this test's program and the kernel: every read of weights goes through here.
namespace troupe::testing {

/// What pread is to do: -2 to read as usual, else its result, with errno set.
using OnPread = std::function<ssize_t(int fd, void* to, std::size_t bytes, off_t from)>;

/// As long as it lives.
class PreadHook {
 public:
  explicit PreadHook(OnPread on_pread);
  ~PreadHook();
  PreadHook(const PreadHook&) = delete;
  PreadHook& operator=(const PreadHook&) = delete;
};

}  // namespace troupe::testing
