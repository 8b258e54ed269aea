#include "model/weight_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "model/file_error.h"

namespace troupe {
namespace {

/// What one system call reads at most: a hang or an error costs no more than that.
constexpr std::size_t kReadBytesMax = 4u << 20;

}  // namespace

WeightFile::Identity WeightFile::identity_of(const struct ::stat& st) {
  return {st.st_dev, st.st_ino, static_cast<std::uint64_t>(st.st_size), st.st_mtim.tv_sec,
          st.st_mtim.tv_nsec};
}

Result<std::unique_ptr<WeightFile>> WeightFile::open(const std::string& folder,
                                                     const std::string& name) {
  std::unique_ptr<WeightFile> file(new WeightFile);
  file->name_ = name;
  file->path_ = folder + "/" + name;
  // O_NONBLOCK, so that a FIFO of that name does not hold us up.
  file->fd_ = ::open(file->path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file->fd_ < 0) return file_error(file->path_, "cannot be opened", errno);
  struct stat st {};
  if (::fstat(file->fd_, &st) != 0) return file_error(file->path_, "cannot be examined", errno);
  if (!S_ISREG(st.st_mode)) return corrupt(file->path_ + " should be a regular file");
  file->identity_ = identity_of(st);
  return file;
}

WeightFile::~WeightFile() {
  if (fd_ >= 0) ::close(fd_);
}

Status WeightFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = ::pread(fd_, out.data(), std::min(out.size(), kReadBytesMax),
                                static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return file_error(path_, "cannot be read at byte " + std::to_string(offset), errno);
    if (got == 0)
      return corrupt(path_ + " has shrunk to " + std::to_string(offset) +
                     " bytes since it was opened");
    offset += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
  return {};
}

Status WeightFile::unchanged() const {
  struct stat here {}, there {};
  if (::fstat(fd_, &here) != 0) return file_error(path_, "cannot be examined", errno);
  if (::stat(path_.c_str(), &there) != 0)
    return file_error(path_, "is not there any more; restore it", errno);
  if (identity_of(here) == identity_ && identity_of(there) == identity_) return {};
  const std::uint64_t size = identity_of(here).size;
  return corrupt(path_ +
                 (size < identity_.size ? " has shrunk to " + std::to_string(size) + " bytes"
                                        : std::string(" has changed")) +
                 " since it was opened");
}

int WeightFile::open_direct() const {
  const std::string self = "/proc/self/fd/" + std::to_string(fd_);
  return ::open(self.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
}

}  // namespace troupe
