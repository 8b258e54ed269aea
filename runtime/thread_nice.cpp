#include "runtime/thread_nice.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace troupe {

/// On Linux the id of a thread stands for that thread alone (setpriority(2), "Bugs").
void set_thread_nice(int nice) {
  if (nice != 0) setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), nice);
}

}  // namespace troupe
