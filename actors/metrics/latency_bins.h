#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace troupe {

/// Half of the values are at most p50, 99 of 100 at most p99.
struct Quantiles {
  double p50 = 0, p99 = 0;
};

/// Times, counted in bins from 10 us to 1,000 s, each 5 % wider than the one before: constant
/// memory however many come, and a quantile is exact to half a bin.
class LatencyBins {
 public:
  void add(double seconds);
  LatencyBins& operator+=(const LatencyBins& other);
  /// Of nearest rank, ms; none: no time came.
  std::optional<Quantiles> quantiles_ms() const;

 private:
  static constexpr std::size_t kBins = 378;  ///< ln(1e8) / ln(1.05)
  std::array<std::uint32_t, kBins> bins_{};
};

}  // namespace troupe
