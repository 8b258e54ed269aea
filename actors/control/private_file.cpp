#include "actors/control/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

namespace troupe::control {
namespace {

std::string reason() { return std::strerror(errno); }

/// Closes the descriptor at the end of its scope.
struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

bool write_all(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return ::fsync(fd) == 0;
}

/// That the name is there outlives a power cut as well, where the file system can say so.
void sync_folder(const std::filesystem::path& folder) {
  const Descriptor opened{
      ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (opened.fd >= 0) (void)::fsync(opened.fd);
}

}  // namespace

void give_to_owner_of_folder(int fd, const std::filesystem::path& path) {
  struct stat folder {};
  const auto within = path.has_parent_path() ? path.parent_path() : ".";
  if (::geteuid() == 0 && ::stat(within.c_str(), &folder) == 0 && folder.st_uid != 0)
    (void)!::fchown(fd, folder.st_uid, folder.st_gid);
}

Status make_private_folder(const std::filesystem::path& folder) {
  std::error_code failed;
  if (std::filesystem::is_directory(folder, failed)) return {};
  if (folder.has_parent_path()) std::filesystem::create_directories(folder.parent_path(), failed);
  if (::mkdir(folder.c_str(), 0700) == 0) {
    const Descriptor made{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (made.fd >= 0) give_to_owner_of_folder(made.fd, folder);
    return {};
  }
  const std::string why = errno == EEXIST ? "a file is in its place" : reason();
  if (std::filesystem::is_directory(folder, failed)) return {};  // another process was faster
  return unavailable("The state folder " + folder.string() + " cannot be made: " + why +
                     "; choose another with --state-dir.");
}

Status write_private_file(const std::filesystem::path& path, std::string_view content,
                          IfExists if_exists) {
  const std::string target = path.string();
  const auto failed = [&] {
    const bool full = errno == ENOSPC || errno == EDQUOT;
    return unavailable("The file " + target + " cannot be written: " + reason() + "; " +
                       (full ? "make room, or " : "") +
                       "choose another state folder with --state-dir.");
  };
  std::string temporary = target + ".XXXXXX";
  const Descriptor file{::mkostemp(temporary.data(), O_CLOEXEC)};  // with mode 0600
  if (file.fd < 0) return failed();
  bool done = write_all(file.fd, content);
  // A command of root's must not take a file away from the service that it is of.
  struct stat before {};
  if (done && ::stat(target.c_str(), &before) != 0)
    give_to_owner_of_folder(file.fd, path);
  else if (done && if_exists == IfExists::kReplace && before.st_uid != ::geteuid())
    done = ::fchown(file.fd, before.st_uid, before.st_gid) == 0;
  if (done && if_exists == IfExists::kReplace)
    done = std::rename(temporary.c_str(), target.c_str()) == 0;
  else if (done)
    done = ::link(temporary.c_str(), target.c_str()) == 0 || errno == EEXIST;
  const Status status = done ? Status() : failed();
  ::unlink(temporary.c_str());
  if (done) sync_folder(path.parent_path());
  return status;
}

Result<std::string> read_small_file(const std::filesystem::path& path, std::size_t bytes_max) {
  const std::string name = path.string();
  // Not blocking: the path may name a pipe.
  const Descriptor file{::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0 && (errno == ENOENT || errno == ENOTDIR))
    return not_found(name + " does not exist.");
  struct stat info {};
  if (file.fd < 0 || ::fstat(file.fd, &info) != 0)
    return unavailable("Cannot read " + name + ": " + reason() + ".");
  if (!S_ISREG(info.st_mode)) return corrupt(name + " is no regular file.");
  std::string content(bytes_max + 1, '\0');
  std::size_t size = 0;
  while (size < content.size()) {
    const ssize_t got = ::read(file.fd, content.data() + size, content.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return unavailable("Cannot read " + name + ": " + reason() + ".");
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (size > bytes_max)
    return corrupt(name + " is longer than " + std::to_string(bytes_max) + " bytes.");
  content.resize(size);
  return content;
}

}  // namespace troupe::control
