#include "tools/troupe/pull/mirrors.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/log.h"
#include "tools/troupe/pull/limits.h"
#include "tools/troupe/pull/repo_listing.h"

namespace troupe::pull {
namespace {

/// Whether the next try, at the same server, may bring what this one did not.
bool may_pass(const Error& error) {
  return error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kDeadlineExceeded ||
         error.code == ErrorCode::kCorrupt;
}

}  // namespace

Connections connect_all(const PullOptions& options) {
  Connections all;
  for (const http::Url& url : options.endpoints)
    all.push_back(std::make_unique<HubConnection>(
        HubOptions{url, all.empty() ? options.token : std::string(), options.silence}));
  return all;
}

Mirrors::Mirrors(const PullOptions& options, std::string commit)
    : options_(options), commit_(std::move(commit)), given_up_(options.endpoints.size()) {}

void Mirrors::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  stop_.notify_all();
}

bool Mirrors::stopping() {
  const std::lock_guard lock(mutex_);
  return stopped_;
}

/// False: it was stopped meanwhile.
bool Mirrors::pause(Duration time) {
  std::unique_lock lock(mutex_);
  return !stop_.wait_for(lock, time, [this] { return stopped_; });
}

bool Mirrors::is_given_up(std::size_t endpoint) {
  const std::lock_guard lock(mutex_);
  return given_up_[endpoint];
}

void Mirrors::give_up(std::size_t endpoint, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (given_up_[endpoint]) return;
  given_up_[endpoint] = true;
  logger().warn("{} is not asked any more: {}", options_.endpoints[endpoint].text(), why);
}

Status Mirrors::fetch(const Range& range, Connections& connections, const Sink& sink) {
  const std::string target =
      "/" + options_.name + "/resolve/" + commit_ + "/" + url_path(range.path);
  std::optional<Error> last;
  std::uint64_t got = 0;
  const auto fetch_from = [&](HubConnection& hub) {
    Status taken;
    const Status fetched = hub.fetch(target, {range.first + got, range.size - got, range.of},
                                     [&](std::string_view bytes) {
                                       taken = sink(range.first + got, bytes);
                                       if (taken.ok()) got += bytes.size();
                                       return taken;
                                     });
    return taken.ok() ? fetched : taken;
  };
  for (std::size_t i = range.endpoint; i < connections.size(); ++i) {
    const bool is_last = i + 1 == connections.size();
    if (!is_last && is_given_up(i)) continue;
    Duration wait = kRetryPause;
    int tries = 0;
    while (tries < kTriesMax) {
      const std::uint64_t before = got;
      const Status fetched = fetch_from(*connections[i]);
      if (fetched.ok()) return {};
      if (fetched.error().code == ErrorCode::kResourceExhausted || stopping()) return fetched;
      last = fetched.error();
      if (!may_pass(*last)) break;
      // A server that brings something is asked for the rest: the last one however little it is.
      const bool moved = got - before >= (is_last ? 1 : kProgressBytesMin);
      tries = moved ? 0 : tries + 1;
      wait = moved ? kRetryPause : std::min<Duration>(2 * wait, kRetryPauseMax);
      if (tries < kTriesMax && !pause(wait)) return fetched;
    }
    if (is_last) break;
    if (tries == kTriesMax) give_up(i, last->message);
    logger().info("{} comes from the next endpoint: {}", range.path, last->message);
  }
  return last ? *last : unavailable("No endpoint is left to ask.");
}

}  // namespace troupe::pull
