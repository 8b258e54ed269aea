#include "actors/control/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "actors/control/private_file.h"
#include "runtime/clock.h"

namespace troupe::control {
namespace {

constexpr Duration kTryEvery = std::chrono::milliseconds(5);

/// Locks of network file systems want to write; a file that only its folder lets us replace is
/// locked by reading it.
int open_for_lock(const std::filesystem::path& path, bool make) {
  const int flags = O_CLOEXEC | O_NONBLOCK;
  int fd = make ? ::open(path.c_str(), O_RDWR | flags | O_CREAT | O_EXCL, 0600) : -1;
  if (fd >= 0) {
    give_to_owner_of_folder(fd, path);
    return fd;
  }
  if (!make || errno == EEXIST) fd = ::open(path.c_str(), O_RDWR | flags);
  return fd < 0 && errno == EACCES ? ::open(path.c_str(), O_RDONLY | flags) : fd;
}

/// What has been renamed over it since it was opened has a lock of its own.
bool is_still_there(int fd, const std::filesystem::path& path) {
  struct stat opened {
  }, there{};
  return ::fstat(fd, &opened) == 0 && ::stat(path.c_str(), &there) == 0 &&
         opened.st_dev == there.st_dev && opened.st_ino == there.st_ino;
}

}  // namespace

Result<FileLock> FileLock::take(const std::filesystem::path& path, IfMissing if_missing,
                                Duration patience) {
  const TimePoint until = now() + patience;
  while (true) {
    FileLock lock(open_for_lock(path, if_missing == IfMissing::kMake));
    if (lock.fd_ < 0 && errno == ENOENT) return not_found(path.string() + " does not exist.");
    const bool taken = lock.fd_ >= 0 && ::flock(lock.fd_, LOCK_EX | LOCK_NB) == 0;
    if (taken && is_still_there(lock.fd_, path)) return FileLock(std::exchange(lock.fd_, -1));
    const bool busy = taken || (lock.fd_ >= 0 && errno == EWOULDBLOCK);
    if (!busy || now() >= until)
      return unavailable("The file " + path.string() + " cannot be changed: " +
                         (busy ? "another process does" : std::strerror(errno)) + ".");
    if (!taken) std::this_thread::sleep_for(kTryEvery);
  }
}

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

Status replace_private_file(const std::filesystem::path& path, std::string_view expected,
                            std::string_view content, std::size_t bytes_max) {
  const auto lock = FileLock::take(path);
  if (!lock.ok()) return lock.error();
  const auto there = read_small_file(path, bytes_max);
  if (!there.ok()) return there.error();
  if (*there != expected) return unavailable(path.string() + " has just been changed.");
  return write_private_file(path, content, IfExists::kReplace);
}

}  // namespace troupe::control
