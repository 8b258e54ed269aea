#include "tests/model/pread_hook.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <memory>
#include <mutex>

namespace troupe::testing {
namespace {

std::mutex mutex;
std::shared_ptr<const OnPread> hook;  // guarded by mutex; a call that hangs keeps its own

}  // namespace

PreadHook::PreadHook(OnPread on_pread) {
  std::lock_guard lock(mutex);
  hook = std::make_shared<const OnPread>(std::move(on_pread));
}

PreadHook::~PreadHook() {
  std::lock_guard lock(mutex);
  hook.reset();
}

ssize_t hooked(int fd, void* to, std::size_t bytes, off_t from) {
  std::shared_ptr<const OnPread> mine;
  {
    std::lock_guard lock(mutex);
    mine = hook;
  }
  const ssize_t result = mine ? (*mine)(fd, to, bytes, from) : -2;
  return result == -2 ? syscall(SYS_pread64, fd, to, bytes, from) : result;
}

}  // namespace troupe::testing

/// Takes the C library's place in this program.
extern "C" ssize_t pread(int fd, void* to, std::size_t bytes, off_t from) {
  return troupe::testing::hooked(fd, to, bytes, from);
}
