#pragma once

#include <string>
#include <vector>

#include "runtime/clock.h"
#include "tools/troupe/bench/http.h"

namespace troupe::bench {

/// How much room the client itself had: what it measures late, it measures wrong.
struct Headroom {
  double lag_p50_ms = 0, lag_p99_ms = 0, lag_max_ms = 0;  ///< of its loop
  double cpu_share = 0;  ///< of one processor, of the loop's thread
  bool bottleneck() const;
  /// One sentence.
  std::string text() const;
};

/// Looks every few milliseconds how late the loop is. The loop's thread makes and asks it.
class HeadroomWatch {
 public:
  /// Until the client forgets its timers.
  explicit HeadroomWatch(HttpClient& client);
  Headroom so_far() const;

 private:
  void look_again();

  HttpClient& client_;
  const TimePoint begun_;
  const double cpu_begun_s_;
  TimePoint due_;
  std::vector<double> lags_ms_;
};

}  // namespace troupe::bench
