#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "runtime/split_mix.h"

namespace troupe::bench {

/// Seeded draws, the same on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : numbers_(seed) {}
  /// The n-th stream of a seed, apart from its others.
  Random(std::uint64_t seed, std::uint64_t stream)
      : numbers_(SplitMix(seed ^ (stream * 0xd1342543de82ef95u)).next()) {}

  /// In (0, 1].
  double uniform() { return static_cast<double>((numbers_.next() >> 11) + 1) * 0x1p-53; }
  /// In [0, bound); bound > 0.
  std::uint64_t below(std::uint64_t bound) { return numbers_.next() % bound; }
  /// In [low, high].
  std::uint64_t between(std::uint64_t low, std::uint64_t high) {
    return low + below(high - low + 1);
  }
  double exponential() { return -std::log(uniform()); }
  double normal() {
    return std::sqrt(2 * exponential()) * std::cos(2 * 3.14159265358979323846 * uniform());
  }
  /// The gamma distribution of scale 1 (Marsaglia, Tsang 2000); shape > 0.
  double gamma(double shape);

 private:
  SplitMix numbers_;
};

/// When each of `count` requests arrives, in seconds: the gaps are gamma distributed with the mean
/// 1 / rate, `burstiness` is the shape (1: a Poisson process; infinite: all alike), and the whole
/// is stretched so that the last arrives at count / rate, as `vllm bench serve` does. An infinite
/// rate: all at once.
std::vector<double> arrivals(std::size_t count, double rate, double burstiness, std::uint64_t seed);

}  // namespace troupe::bench
