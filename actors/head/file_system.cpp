#include "actors/head/file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "actors/control/private_file.h"

namespace troupe {
namespace {

Error trouble(const std::string& path, const char* what) {
  return unavailable(path + " cannot be " + what + ": " + std::strerror(errno) + ".");
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  operator int() const { return fd_; }

 private:
  const int fd_;
};

class DiskWriter final : public FileSystem::Writer {
 public:
  DiskWriter(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  Status append(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return trouble(path_, "written");
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return {};
  }
  Status sync() override {
    if (::fdatasync(fd_) != 0) return trouble(path_, "brought to the disk");
    // Who deletes a folder, or moves it away, takes what is written with it.
    struct stat written {
    }, there{};
    if (::fstat(fd_, &written) != 0) return trouble(path_, "looked at");
    const bool gone = ::stat(path_.c_str(), &there) != 0 && (errno == ENOENT || errno == ENOTDIR);
    if (gone || (there.st_nlink > 0 &&
                 (there.st_ino != written.st_ino || there.st_dev != written.st_dev)))
      return not_found("The file " + path_ + " is not there any more: it was deleted, or moved.");
    return {};
  }

 private:
  const std::string path_;
  const Descriptor fd_;
};

class DiskReader final : public FileSystem::Reader {
 public:
  DiskReader(std::string path, int fd, std::uint64_t size)
      : path_(std::move(path)), fd_(fd), size_(size) {}
  std::uint64_t size() const override { return size_; }
  Status read(std::uint64_t at, std::span<std::byte> into) override {
    while (!into.empty()) {
      const ssize_t got = ::pread(fd_, into.data(), into.size(), static_cast<off_t>(at));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return trouble(path_, ("read at byte " + std::to_string(at)).c_str());
      if (got == 0) return unavailable(path_ + " became shorter while it was read.");
      at += static_cast<std::uint64_t>(got);
      into = into.subspan(static_cast<std::size_t>(got));
    }
    return {};
  }

 private:
  const std::string path_;
  const Descriptor fd_;
  const std::uint64_t size_;
};

}  // namespace

Status DiskFiles::make_folder(const std::string& path) {
  return control::make_private_folder(path);
}

Status DiskFiles::sync_folder(const std::string& path) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd < 0) return trouble(path, "opened");
  if (::fsync(fd) == 0 || errno == EINVAL || errno == ENOTSUP) return {};
  return trouble(path, "brought to the disk");
}

Result<std::vector<std::string>> DiskFiles::list(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entries(folder, error);
  std::error_code none;
  if (error == std::errc::no_such_file_or_directory && !std::filesystem::is_symlink(folder, none))
    return names;
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    if (entries->is_regular_file(error)) names.push_back(entries->path().filename().string());
    if (error == std::errc::no_such_file_or_directory) error.clear();  // it has just gone
  }
  if (error) return unavailable(folder + " cannot be read: " + error.message() + ".");
  return names;
}

Result<std::unique_ptr<FileSystem::Writer>> DiskFiles::create(const std::string& path) {
  const int fd =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return trouble(path, "made");
  auto file = std::make_unique<DiskWriter>(path, fd);
  control::give_to_owner_of_folder(fd, path);
  if (::fchmod(fd, 0600) != 0) return trouble(path, "kept to its owner");  // whatever the umask
  return std::unique_ptr<Writer>(std::move(file));
}

Result<std::unique_ptr<FileSystem::Reader>> DiskFiles::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return trouble(path, "opened");
  struct stat info {};
  const bool known = ::fstat(fd, &info) == 0;
  auto file = std::make_unique<DiskReader>(path, fd, static_cast<std::uint64_t>(info.st_size));
  if (!known) return trouble(path, "read");
  return std::unique_ptr<Reader>(std::move(file));
}

Status DiskFiles::sync(const std::string& path) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd < 0) return trouble(path, "opened");
  return ::fdatasync(fd) == 0 ? Status() : trouble(path, "brought to the disk");
}

Status DiskFiles::rename(const std::string& from, const std::string& to) {
  return std::rename(from.c_str(), to.c_str()) == 0 ? Status() : trouble(from, "renamed");
}

Status DiskFiles::remove(const std::string& path) {
  return ::unlink(path.c_str()) == 0 || errno == ENOENT ? Status() : trouble(path, "removed");
}

}  // namespace troupe
