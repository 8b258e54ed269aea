#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "runtime/result.h"

namespace troupe {

/// A file being made, of a size that is known. It is removed with its owner unless it is kept.
class NewFile {
 public:
  /// Fails where there is a file already, and at once where the storage has no room for it.
  static Result<NewFile> create(const std::string& path, std::uint64_t bytes);
  ~NewFile();
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;

  /// Any thread, each its own part.
  Status write(std::span<const std::byte> bytes, std::uint64_t offset) const;
  void keep() { kept_ = true; }

 private:
  NewFile() = default;

  std::string path_;
  int fd_ = -1;
  bool kept_ = false;
};

}  // namespace troupe
