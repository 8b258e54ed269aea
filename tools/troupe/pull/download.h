#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tools/troupe/pull/hub_cache.h"
#include "tools/troupe/pull/hub_connection.h"
#include "tools/troupe/pull/part_file.h"
#include "tools/troupe/pull/pull.h"

namespace troupe::pull {

/// Fetches files by several threads, chunk by chunk, and checks each when its last chunk is here.
/// A file whose bytes are not what the listing says comes again, whole, from the next endpoint.
class Download {
 public:
  /// `files`, no two of the same bytes, become blobs of `folder`; `endpoints` are tried in that
  /// order.
  Download(PullOptions options, const std::string& commit, std::vector<RepoFile> files,
           HubFolder folder, PullProgress& progress);
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
  using Connections = std::vector<std::unique_ptr<HubConnection>>;

  Status begin(File& file);
  void work();
  std::optional<Job> next();
  Status carry_out(const Job& job, Connections& connections);
  Status fetch_chunk(const Job& job, Connections& connections);
  Status fetch_from(HubConnection& hub, const Job& job, std::uint64_t& got);
  Status finish(File& file);
  void queue(File& file);
  bool stopping();
  bool pause(Duration time);
  /// Endpoints that brought nothing, try after try, are passed over from then on.
  bool is_given_up(std::size_t endpoint);
  void give_up(std::size_t endpoint, const std::string& why);

  const PullOptions options_;
  const std::string commit_;
  const HubFolder folder_;
  PullProgress& progress_;
  std::vector<File> files_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;        // guarded by mutex_
  std::size_t left_ = 0;        // guarded by mutex_; files that are not done
  std::vector<bool> given_up_;  // guarded by mutex_; by endpoint
  std::optional<Error> error_;  // guarded by mutex_; the first ends the download
};

/// Connections to all endpoints, of one thread.
std::vector<std::unique_ptr<HubConnection>> connect_all(const PullOptions& options);

}  // namespace troupe::pull
