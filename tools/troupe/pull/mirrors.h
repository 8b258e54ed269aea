#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/clock.h"
#include "runtime/result.h"
#include "tools/troupe/pull/hub_connection.h"
#include "tools/troupe/pull/pull.h"

namespace troupe::pull {

using Connections = std::vector<std::unique_ptr<HubConnection>>;

/// Connections to all endpoints, of one thread.
Connections connect_all(const PullOptions& options);

/// The endpoints of a commit's files, asked one after the other for the same bytes. Shared by the
/// threads of a download.
class Mirrors {
 public:
  Mirrors(const PullOptions& options, std::string commit);

  struct Range {
    std::string path;
    std::uint64_t first = 0, size = 0, of = 0;
    std::size_t endpoint = 0;  ///< the first that may be asked
  };
  /// Hands on each byte once, in order.
  using Sink = std::function<Status(std::uint64_t offset, std::string_view bytes)>;
  Status fetch(const Range& range, Connections& connections, const Sink& sink);
  /// Whoever waits to try again does not.
  void stop();

 private:
  bool stopping();
  bool pause(Duration time);
  /// Endpoints that brought nothing, try after try, are passed over from then on.
  bool is_given_up(std::size_t endpoint);
  void give_up(std::size_t endpoint, const std::string& why);

  const PullOptions options_;
  const std::string commit_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopped_ = false;        // guarded by mutex_
  std::vector<bool> given_up_;  // guarded by mutex_; by endpoint
};

}  // namespace troupe::pull
