#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "runtime/result.h"
#include "tools/troupe/pull/repo_listing.h"

namespace troupe::pull {

/// A file on its way: its bytes come in chunks, in any order, from several threads. Beside it a
/// second one holds a byte for each chunk, '1' once that is here, so that a later run goes on. Both
/// are open from the first write to the end: a repository may have thousands.
///
///     parts/DIGEST       the bytes, of the file's full length
///     parts/DIGEST.done  one byte a chunk
class PartFile {
 public:
  /// Takes up what an earlier run has left; leaves nothing open. Errors: kUnavailable,
  /// kResourceExhausted (no room).
  static Result<std::unique_ptr<PartFile>> open(const std::filesystem::path& folder,
                                                const RepoFile& file);
  ~PartFile();
  PartFile(const PartFile&) = delete;

  std::size_t chunks() const { return chunks_; }
  /// Some of it is an earlier run's, which may have been lost with the power.
  bool resumed() const { return resumed_; }
  bool has(std::size_t chunk) const { return done_[chunk] == '1'; }
  Status write(std::uint64_t offset, std::string_view bytes);
  Status mark(std::size_t chunk);
  /// Forgets what is here. While no other thread works on it; so is move_to().
  Status clear();

  /// Whether the bytes are those of the listing; reads them all.
  Result<bool> verify();
  /// Makes it the file `to`, for good also when the power fails.
  Status move_to(const std::filesystem::path& to);

 private:
  PartFile(const std::filesystem::path& folder, const RepoFile& file);
  Error failed(const std::string& what) const;
  Status ready();
  void close();

  const RepoFile file_;
  const std::string path_, done_path_;
  const std::size_t chunks_;
  std::mutex opening_;
  int fd_ = -1, done_fd_ = -1;  ///< guarded by opening_ until ready() has returned
  bool resumed_ = false;
  std::string done_;  ///< each byte is one thread's at a time
};

}  // namespace troupe::pull
