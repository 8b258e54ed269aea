#include "tools/troupe/worker_registry.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "actors/control/private_file.h"
#include "runtime/host.h"

namespace troupe::cli {
namespace {

constexpr std::size_t kNameBytesMax = 64;  // of a node

std::string folder_of(const std::string& state_dir) { return state_dir + "/workers"; }

/// A state folder may be shared by machines.
std::string prefix() { return host_name() + "."; }

struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

/// Whether that process holds the file's lock.
bool holds(pid_t pid, const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return false;
  struct flock lock = whole_file();
  const bool held = ::fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK && lock.l_pid == pid;
  ::close(fd);
  return held;
}

RegisteredWorker look_at(pid_t pid, const std::string& path) {
  const auto name = control::read_small_file(path, kNameBytesMax);
  RegisteredWorker worker{pid, name.ok() ? *name : "", 0};
  struct stat file {};
  if (::stat(path.c_str(), &file) == 0)
    worker.beat = std::int64_t{file.st_mtim.tv_sec} * 1'000'000'000 + file.st_mtim.tv_nsec;
  return worker;
}

}  // namespace

/// The name is there with its lock, not before: without one it is a name that was left.
WorkerRegistration::WorkerRegistration(const std::string& state_dir) {
  if (!control::make_private_folder(folder_of(state_dir)).ok()) return;
  path_ = folder_of(state_dir) + "/" + prefix() + std::to_string(getpid());
  std::string unnamed = state_dir + "/worker.XXXXXX";
  lock_ = ::mkostemp(unnamed.data(), O_CLOEXEC);  // with mode 0600
  if (lock_ < 0) return;
  struct flock lock = whole_file();
  ::fcntl(lock_, F_SETLK, &lock);
  if (::rename(unnamed.c_str(), path_.c_str()) == 0) return;
  ::unlink(unnamed.c_str());
  ::close(std::exchange(lock_, -1));
}

WorkerRegistration::~WorkerRegistration() {
  if (lock_ < 0) return;
  ::unlink(path_.c_str());
  ::close(lock_);
}

void WorkerRegistration::note(NodeId node, std::uint64_t turns) {
  if (lock_ < 0) return;
  if (std::exchange(turns_, turns) != turns) ::futimens(lock_, nullptr);
  if (node == node_) return;
  const std::string name = node == NodeId{} ? "" : to_string(node);
  if (::ftruncate(lock_, 0) == 0 &&
      ::pwrite(lock_, name.data(), name.size(), 0) == static_cast<ssize_t>(name.size()))
    node_ = node;
}

std::vector<RegisteredWorker> registered_workers(const std::string& state_dir) {
  std::vector<RegisteredWorker> workers;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(folder_of(state_dir), failed)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix())) continue;
    const char* end = name.data() + name.size();
    pid_t pid = 0;
    const auto parsed = std::from_chars(name.data() + prefix().size(), end, pid);
    if (parsed.ec != std::errc() || parsed.ptr != end || pid <= 0) continue;
    if (holds(pid, entry.path().string()))
      workers.push_back(look_at(pid, entry.path().string()));
    else if (::kill(pid, 0) != 0 && errno == ESRCH)
      ::unlink(entry.path().c_str());
  }
  return workers;
}

}  // namespace troupe::cli
