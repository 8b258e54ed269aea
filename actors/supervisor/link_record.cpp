#include "actors/supervisor/link_record.h"

#include <algorithm>

namespace troupe {

void LinkRecord::keep(const PairReport& report, TimePoint now) {
  const NodePair pair{report.lower, report.higher};
  pairs_.erase(pair);
  if (report.error && report.error->code == ErrorCode::kNotFound) return;
  if (pairs_.size() >= kPairsMax)
    pairs_.erase(std::min_element(pairs_.begin(), pairs_.end(), [](const auto& a, const auto& b) {
      return a.second.time < b.second.time;
    }));
  pairs_.emplace(pair, Last{report, now});
}

void LinkRecord::forget(NodeId node) {
  std::erase_if(pairs_, [&](const auto& entry) {
    return entry.first.first == node || entry.first.second == node;
  });
}

}  // namespace troupe
