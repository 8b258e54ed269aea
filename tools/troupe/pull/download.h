#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tools/troupe/pull/hub_cache.h"
#include "tools/troupe/pull/mirrors.h"
#include "tools/troupe/pull/part_file.h"
#include "tools/troupe/pull/pull.h"

namespace troupe::pull {

/// Fetches files by several threads, chunk by chunk, and checks each when its last chunk is here.
/// A file whose bytes are not what the listing says comes again, whole, from the next endpoint.
class Download {
 public:
  /// `files`, no two of the same bytes, become blobs of `folder`.
  Download(const PullOptions& options, Mirrors& mirrors, std::vector<RepoFile> files,
           const HubFolder& folder, PullProgress& progress);
  Status run();

 private:
  struct File {
    RepoFile entry;
    std::unique_ptr<PartFile> part{};
    std::size_t chunks_left = 0;
    std::size_t endpoint = 0;  ///< the first that may be asked: those before it lied
  };
  struct Job {
    File* file = nullptr;
    std::size_t chunk = 0, endpoint = 0;
  };

  Status begin(File& file);
  void work();
  std::optional<Job> next();
  Status carry_out(const Job& job, Connections& connections);
  Status fetch_chunk(const Job& job, Connections& connections);
  Status finish(File& file);
  void queue(File& file);

  const PullOptions& options_;
  Mirrors& mirrors_;
  const HubFolder& folder_;
  PullProgress& progress_;
  std::vector<File> files_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;        // guarded by mutex_
  std::size_t left_ = 0;        // guarded by mutex_; files that are not done
  std::optional<Error> error_;  // guarded by mutex_; the first ends the download
};

}  // namespace troupe::pull
