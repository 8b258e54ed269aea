#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/result.h"

namespace troupe {

/// What the journal asks of a file system, and no more: a test puts one in its place that forgets
/// what was not synced. Errors: kUnavailable, with the path and the reason. Any thread, one at a
/// time.
class FileSystem {
 public:
  /// A file that grows at its end.
  class Writer {
   public:
    virtual ~Writer() = default;
    virtual Status append(std::span<const std::byte> bytes) = 0;
    /// What was appended outlives a power cut. After an error nobody knows what does: the file is
    /// not to be synced again. kNotFound: its name is gone, or another file's.
    virtual Status sync() = 0;
  };
  class Reader {
   public:
    virtual ~Reader() = default;
    virtual std::uint64_t size() const = 0;
    /// All of `into`; there must be as much from `at` on.
    virtual Status read(std::uint64_t at, std::span<std::byte> into) = 0;
  };

  virtual ~FileSystem() = default;
  /// For its owner only, with those above it. No error if it is there.
  virtual Status make_folder(const std::string& path) = 0;
  /// The names in a folder outlive a power cut, and those that are gone are gone, where the file
  /// system can promise it.
  virtual Status sync_folder(const std::string& path) = 0;
  /// Names of the regular files in a folder; none if it is not there.
  virtual Result<std::vector<std::string>> list(const std::string& folder) = 0;
  /// A new file with mode 0600.
  virtual Result<std::unique_ptr<Writer>> create(const std::string& path) = 0;
  virtual Result<std::unique_ptr<Reader>> open(const std::string& path) = 0;
  /// What a file has, whoever wrote it, outlives a power cut.
  virtual Status sync(const std::string& path) = 0;
  virtual Status rename(const std::string& from, const std::string& to) = 0;
  virtual Status remove(const std::string& path) = 0;
};

/// That of this machine.
class DiskFiles final : public FileSystem {
 public:
  Status make_folder(const std::string& path) override;
  Status sync_folder(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& folder) override;
  Result<std::unique_ptr<Writer>> create(const std::string& path) override;
  Result<std::unique_ptr<Reader>> open(const std::string& path) override;
  Status sync(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status remove(const std::string& path) override;
};

}  // namespace troupe
