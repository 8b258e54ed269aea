#include "model/random/new_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "model/file_error.h"

namespace troupe {

Result<NewFile> NewFile::create(const std::string& path, std::uint64_t bytes) {
  NewFile file;
  file.path_ = path;
  file.fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file.fd_ < 0) return file_error(path, "cannot be made", errno);
  const int error = posix_fallocate(file.fd_, 0, static_cast<off_t>(bytes));
  if (error != 0 && error != EOPNOTSUPP && error != EINVAL)
    return file_error(path, "cannot have its " + std::to_string(bytes) + " bytes", error);
  return file;
}

NewFile::~NewFile() {
  if (fd_ < 0) return;
  close(fd_);
  if (!kept_) unlink(path_.c_str());
}

NewFile::NewFile(NewFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), kept_(other.kept_) {}

Status NewFile::write(std::span<const std::byte> bytes, std::uint64_t offset) const {
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return file_error(path_, "cannot be written", n < 0 ? errno : ENOSPC);
    offset += static_cast<std::uint64_t>(n);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

}  // namespace troupe
