#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/troupe/bench/cluster.h"
#include "tools/troupe/bench/random.h"

namespace troupe::bench {

/// "every=10s", "every=500ms" or "every=1.5s": how long from one to the next.
Result<Duration> parse_kill(std::string_view text);

/// Kills a worker of this machine each period, for as long as the client keeps its timers. The last
/// one that is ready is left alone: without it there is nothing to see.
class WorkerKiller {
 public:
  WorkerKiller(HttpClient& client, Duration period, std::uint64_t seed);
  /// Begins now; marks count from now on.
  void start();
  /// No more, also where the cluster was asked already.
  void stop() { stopped_ = true; }
  /// What it did, and what it did not.
  const std::vector<Mark>& marks() const { return marks_; }
  std::uint64_t killed() const { return killed_; }

 private:
  void wait();
  void on_status(const Result<HttpAnswer>& answer);
  void say(const std::string& kind, const std::string& text);

  HttpClient& client_;
  const Duration period_;
  const std::string host_;
  Random random_;
  TimePoint begun_{}, next_{};
  std::vector<Mark> marks_;
  std::uint64_t killed_ = 0;
  bool stopped_ = false;
};

}  // namespace troupe::bench
