#include "actors/metrics/latency_bins.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace troupe {
namespace {

constexpr double kSmallestMs = 0.01, kGrowth = 1.05;

/// In the middle of a bin, so that the error is half of its width.
double bin_ms(std::size_t bin) {
  return kSmallestMs * std::pow(kGrowth, static_cast<double>(bin) + 0.5);
}

}  // namespace

void LatencyBins::add(double seconds) {
  const double steps =
      std::log(std::max(seconds * 1e3, kSmallestMs) / kSmallestMs) / std::log(kGrowth);
  ++bins_[std::min(static_cast<std::size_t>(steps), kBins - 1)];
}

LatencyBins& LatencyBins::operator+=(const LatencyBins& other) {
  for (std::size_t bin = 0; bin < kBins; ++bin) bins_[bin] += other.bins_[bin];
  return *this;
}

std::optional<Quantiles> LatencyBins::quantiles_ms() const {
  const auto total = std::accumulate(bins_.begin(), bins_.end(), std::uint64_t{0});
  if (total == 0) return std::nullopt;
  const auto quantile = [&](double share) {
    const auto wanted = static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(total)));
    std::uint64_t seen = 0;
    for (std::size_t bin = 0; bin < kBins; ++bin)
      if ((seen += bins_[bin]) >= wanted) return bin_ms(bin);
    return bin_ms(kBins - 1);
  };
  return Quantiles{quantile(0.5), quantile(0.99)};
}

}  // namespace troupe
