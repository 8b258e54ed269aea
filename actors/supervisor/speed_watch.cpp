#include "actors/supervisor/speed_watch.h"

#include <algorithm>

namespace troupe {

void SpeedWatch::add(std::uint32_t probe_us) {
  if (probe_us == 0) return;
  newest_[count_++ % kProbes] = probe_us;
  if (best_ == 0 || probe_us < best_) best_ = probe_us;
}

std::optional<double> SpeedWatch::slowdown() const {
  if (count_ < kProbes) return std::nullopt;
  auto sorted = newest_;
  std::sort(sorted.begin(), sorted.end());
  return static_cast<double>(sorted[kProbes / 2]) / best_;
}

}  // namespace troupe
