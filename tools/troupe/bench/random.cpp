#include "tools/troupe/bench/random.h"

namespace troupe::bench {

double Random::gamma(double shape) {
  if (shape < 1) return gamma(shape + 1) * std::pow(uniform(), 1 / shape);
  const double d = shape - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  // Each try succeeds with more than 95 %; a generator that never does ends at the mean.
  for (int tries = 0; tries < 1000; ++tries) {
    const double x = normal();
    const double root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(uniform()) < x * x / 2 + d - d * v + d * std::log(v)) return d * v;
  }
  return shape;
}

std::vector<double> arrivals(std::size_t count, double rate, double burstiness,
                             std::uint64_t seed) {
  std::vector<double> at(count, 0);
  if (count == 0 || std::isinf(rate)) return at;
  Random random(seed);
  double sum = 0;
  for (double& moment : at) moment = sum += std::isinf(burstiness) ? 1 : random.gamma(burstiness);
  const double stretch = static_cast<double>(count) / rate / sum;
  for (double& moment : at) moment *= stretch;
  return at;
}

}  // namespace troupe::bench
