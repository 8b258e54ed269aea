#include "model/cost/expert_choice.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace troupe {
namespace {

/// The mean of 1 / rank^s over the first: what the busiest has over the mean is its inverse.
double mean_share(std::int32_t experts, double s) {
  double sum = 0;
  for (std::int32_t rank = 1; rank <= experts; ++rank) sum += std::pow(rank, -s);
  return sum / experts;
}

}  // namespace

ExpertChances chances_of_skew(std::int32_t experts, std::int32_t top_k, double skew,
                              std::int32_t turn) {
  double low = 0, high = 64;
  for (int i = 0; i < 64; ++i) {
    const double s = (low + high) / 2;
    (1 / mean_share(experts, s) < skew ? low : high) = s;
  }
  const double s = skew > 1 ? high : 0;
  const double most = static_cast<double>(top_k) / experts / mean_share(experts, s);
  ExpertChances chances(static_cast<std::size_t>(experts));
  for (std::int32_t rank = 0; rank < experts; ++rank)
    chances[static_cast<std::size_t>((rank + turn) % experts)] =
        std::min(1.0, most * std::pow(rank + 1, -s));
  return chances;
}

ExpertChances chances_of_counts(std::span<const double> counts, std::int32_t top_k) {
  const double all = std::accumulate(counts.begin(), counts.end(), 0.0);
  if (!(all > 0))
    return ExpertChances(counts.size(),
                         static_cast<double>(top_k) / static_cast<double>(counts.size()));
  ExpertChances chances;
  for (const double count : counts) chances.push_back(std::min(1.0, top_k * count / all));
  return chances;
}

double skew_of(const ExpertChances& chances) {
  const double all = std::accumulate(chances.begin(), chances.end(), 0.0);
  if (!(all > 0)) return 1;
  return *std::max_element(chances.begin(), chances.end()) * static_cast<double>(chances.size()) /
         all;
}

double expected_hits(const ExpertChances& chances, double rows) {
  double hits = 0;
  for (const double p : chances) hits += 1 - std::pow(1 - p, rows);
  return hits;
}

}  // namespace troupe
