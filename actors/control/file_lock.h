#pragma once

#include <chrono>
#include <filesystem>
#include <string_view>

#include "runtime/clock.h"
#include "runtime/result.h"

namespace troupe::control {

/// The right to replace a small file by another of its name: held by one at a time, of all threads
/// and processes, and let go with the process. Who only reads needs none.
class FileLock {
 public:
  enum class IfMissing { kFail, kMake };

  static constexpr Duration kPatience = std::chrono::seconds(2);

  /// kNotFound: there is no such file; kUnavailable.
  static Result<FileLock> take(const std::filesystem::path& path,
                               IfMissing if_missing = IfMissing::kFail,
                               Duration patience = kPatience);
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_;
};

/// Writes a file in place of one whose text is `expected`, as write_private_file() does. Whoever
/// else replaces it by this is before or after, never in between. kUnavailable: it holds another
/// text by now, or cannot be written.
Status replace_private_file(const std::filesystem::path& path, std::string_view expected,
                            std::string_view content, std::size_t bytes_max);

}  // namespace troupe::control
