#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/result.h"

struct stat;

namespace troupe {

/// A file of weights, tied to what it was when it was opened: device, inode, size and time of its
/// last change. It is read with pread, never mapped: a file that ends early or fails is an error.
class WeightFile {
 public:
  static Result<std::unique_ptr<WeightFile>> open(const std::string& folder,
                                                  const std::string& name);
  ~WeightFile();
  WeightFile(const WeightFile&) = delete;
  WeightFile& operator=(const WeightFile&) = delete;

  const std::string& path() const { return path_; }
  const std::string& name() const { return name_; }
  std::uint64_t size() const { return identity_.size; }

  /// Fills `out` with the bytes from `offset` on. kCorrupt if the file ends before.
  Status read(std::uint64_t offset, std::span<std::byte> out) const;
  /// It is still the file that was opened, and in its place. kCorrupt if it is another one.
  Status unchanged() const;
  /// Another descriptor of the same file that reads past the page cache; -1 where there is none.
  int open_direct() const;
  int descriptor() const { return fd_; }

 private:
  struct Identity {
    std::uint64_t device = 0, inode = 0, size = 0;
    std::int64_t changed_s = 0, changed_ns = 0;
    bool operator==(const Identity&) const = default;
  };
  static Identity identity_of(const struct ::stat& st);
  WeightFile() = default;

  std::string path_;
  std::string name_;
  int fd_ = -1;
  Identity identity_;
};

}  // namespace troupe
