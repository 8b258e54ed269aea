/* A machine whose clock or disk is not well: stands between a program and the C library (LD_PRELOAD). What is wrong
   is in memory that a test writes (bad_machine.py): the file that BAD_MACHINE names. It concerns files below the
   folder that BAD_MACHINE_FOLDER names; of them, none that is only read. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { WELL = 0, WRITE = 1, SYNC = 2, HANG = 4, CHANGE = 8, LOCK = 16 };
struct state {
  int64_t clock_s;   /* is added to the time of day */
  int32_t wrong;     /* which calls fail, or hang */
  int32_t with;      /* errno of those that fail */
  int32_t times;     /* so often; 0: until a test says otherwise */
};
static volatile struct state well;
static volatile struct state *state = &well;
static const char *folder = "";

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("BAD_MACHINE");
  if (getenv("BAD_MACHINE_FOLDER")) folder = getenv("BAD_MACHINE_FOLDER");
  const int fd = path ? REAL(open)(path, O_RDWR | O_CLOEXEC) : -1;
  if (fd < 0) return;
  void *shared = mmap(NULL, sizeof(struct state), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (shared != MAP_FAILED) state = shared;
  REAL(close)(fd);
}

static int is_ours(const char *path) {
  return folder[0] && strncmp(path, folder, strlen(folder)) == 0;
}
static int is_our_fd(int fd) {
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t size = readlink(link, path, sizeof path - 1);
  if (size < 0) return 0;
  path[size] = 0;
  return is_ours(path);
}

/* Whether a call fails; it may take until the machine is well again. */
static int fails(int what, int ours) {
  if (!ours) return 0;
  while (state->wrong & HANG) usleep(5000);
  if (!(state->wrong & what)) return 0;
  if (state->times > 0 && __sync_sub_and_fetch(&state->times, 1) == 0) state->wrong = WELL;
  errno = state->with;
  return 1;
}

/* --- The disk */

ssize_t write(int fd, const void *bytes, size_t count) {
  static ssize_t (*real)(int, const void *, size_t);
  if (!real) real = REAL(write);
  if (state->wrong && fails(WRITE, is_our_fd(fd))) {
    if (count > 1) return real(fd, bytes, count / 2); /* a part of it, as a disk that runs full */
    return -1;
  }
  return real(fd, bytes, count);
}
int fsync(int fd) { return state->wrong && fails(SYNC, is_our_fd(fd)) ? -1 : REAL(fsync)(fd); }
int fdatasync(int fd) { return state->wrong && fails(SYNC, is_our_fd(fd)) ? -1 : REAL(fdatasync)(fd); }

#define OPEN(name)                                                                             \
  int name(const char *path, int flags, ...) {                                                 \
    va_list more;                                                                              \
    va_start(more, flags);                                                                     \
    const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;              \
    va_end(more);                                                                              \
    const int writes = flags & (O_WRONLY | O_RDWR | O_CREAT);                                  \
    if (state->wrong && writes && fails(CHANGE, is_ours(path))) return -1;                     \
    return REAL(name)(path, flags, mode);                                                      \
  }
OPEN(open)
OPEN(open64)
int mkostemp(char *path, int flags) {
  return state->wrong && fails(CHANGE, is_ours(path)) ? -1 : REAL(mkostemp)(path, flags);
}
int mkostemp64(char *path, int flags) {
  return state->wrong && fails(CHANGE, is_ours(path)) ? -1 : REAL(mkostemp64)(path, flags);
}
int rename(const char *from, const char *to) {
  return state->wrong && fails(CHANGE, is_ours(to)) ? -1 : REAL(rename)(from, to);
}
int link(const char *from, const char *to) {
  return state->wrong && fails(CHANGE, is_ours(to)) ? -1 : REAL(link)(from, to);
}
int unlink(const char *path) {
  return state->wrong && fails(CHANGE, is_ours(path)) ? -1 : REAL(unlink)(path);
}
int mkdir(const char *path, mode_t mode) {
  return state->wrong && fails(CHANGE, is_ours(path)) ? -1 : REAL(mkdir)(path, mode);
}

#define FCNTL(name)                                                                            \
  int name(int fd, int command, ...) {                                                         \
    va_list more;                                                                              \
    va_start(more, command);                                                                   \
    void *argument = va_arg(more, void *);                                                     \
    va_end(more);                                                                              \
    const int locks = command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK;     \
    if (state->wrong && locks && fails(LOCK, is_our_fd(fd))) return -1;                        \
    return REAL(name)(fd, command, argument);                                                  \
  }
FCNTL(fcntl)
FCNTL(fcntl64)

/* --- The clock */

int clock_gettime(clockid_t clock, struct timespec *now) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = REAL(clock_gettime);
  const int result = real(clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    now->tv_sec += state->clock_s;
  return result;
}
time_t time(time_t *into) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (into) *into = now.tv_sec;
  return now.tv_sec;
}
int gettimeofday(struct timeval *into, void *zone) {
  const int result = REAL(gettimeofday)(into, zone);
  if (result == 0) into->tv_sec += state->clock_s;
  return result;
}
