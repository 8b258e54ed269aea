#include "tools/troupe/bench/headroom.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>

#include "tools/troupe/bench/limits.h"
#include "tools/troupe/bench/summary.h"

namespace troupe::bench {
namespace {

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

double cpu_s() {
  rusage used{};
  getrusage(RUSAGE_THREAD, &used);
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

}  // namespace

bool Headroom::bottleneck() const { return lag_p99_ms > kLagMsMax || cpu_share > kBusyShareMax; }

std::string Headroom::text() const {
  char figures[160];
  std::snprintf(figures, sizeof figures,
                "its loop was late by %.2f ms (p50), %.2f ms (p99), %.2f ms at most, and used "
                "%.0f %% of a processor",
                lag_p50_ms, lag_p99_ms, lag_max_ms, cpu_share * 100);
  return (bottleneck() ? "The client was the bottleneck; do not trust these figures: "
                       : "The client had room: ") +
         std::string(figures) + ".";
}

HeadroomWatch::HeadroomWatch(HttpClient& client)
    : client_(client), begun_(now()), cpu_begun_s_(cpu_s()), due_(begun_) {
  look_again();
}

void HeadroomWatch::look_again() {
  due_ = std::max(due_ + kLagInterval, now());
  client_.at(due_, [this] {
    const double late_ms = std::chrono::duration<double, std::milli>(now() - due_).count();
    if (lags_ms_.size() < kLagSamplesMax) lags_ms_.push_back(late_ms);
    look_again();
  });
}

Headroom HeadroomWatch::so_far() const {
  const Spread spread = spread_of(lags_ms_);
  const double span = std::chrono::duration<double>(now() - begun_).count();
  return {spread.median, percentile(spread.sorted, 99), percentile(spread.sorted, 100),
          span > 0 ? (cpu_s() - cpu_begun_s_) / span : 0};
}

}  // namespace troupe::bench
