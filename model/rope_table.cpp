#include "model/rope_table.h"

#include <algorithm>

#include "kernels/scalar_math.h"

namespace troupe {
namespace {

using kernels::log_f64;
using kernels::pow_f64;

constexpr double kTwoPi = 6.28318530717958647692;

// No libm: these two are exact for values that fit an int64, and here they are at most a head's
// size.
double floor_of(double x) {
  const auto whole = static_cast<double>(static_cast<std::int64_t>(x));
  return whole > x ? whole - 1 : whole;
}
double ceil_of(double x) { return -floor_of(-x); }

/// The pair whose wavelength fits `rotations` times into the original context.
double correction_pair(double rotations, const RopeSpec& r) {
  const double context = r.original_positions;
  const double pair =
      r.dim * log_f64(context / (rotations * kTwoPi)) / (2 * log_f64(r.theta));
  return std::clamp(pair, -1e9, 1e9);
}

/// Pairs below `low` keep their angles, those above `high` are stretched (arXiv 2309.00071).
struct YarnRange {
  double low = 0, high = 0;
};
YarnRange yarn_range(const RopeSpec& r) {
  YarnRange range = {correction_pair(r.beta_fast, r), correction_pair(r.beta_slow, r)};
  if (r.truncate) range = {floor_of(range.low), ceil_of(range.high)};
  range = {std::max(range.low, 0.0), std::min(range.high, r.dim - 1.0)};
  if (range.low == range.high) range.high += 0.001;  // as published, against a division by zero
  return range;
}

/// `share` of the stretched frequency, and the rest of its own.
double mixed(double own, double factor, double share) {
  return own / factor * share + own * (1 - share);
}

/// Long wavelengths are stretched, short ones kept, those between are mixed (Llama 3.1).
double llama3(double own, const RopeSpec& r) {
  const double turns = r.original_positions * own / kTwoPi;  // within the original context
  const double kept =
      (turns - r.low_freq_factor) / (r.high_freq_factor - r.low_freq_factor);
  return mixed(own, r.factor, 1 - std::clamp(kept, 0.0, 1.0));
}

}  // namespace

std::vector<float> rope_inverse_frequencies(const RopeSpec& r) {
  const int half = r.dim / 2;
  std::vector<float> frequencies(static_cast<std::size_t>(half));
  const YarnRange yarn =
      r.scaling == RopeSpec::Scaling::kYarn ? yarn_range(r) : YarnRange{0.0, 1.0};
  for (int i = 0; i < half; ++i) {
    double frequency = 1.0 / pow_f64(r.theta, 2.0 * i / r.dim);
    switch (r.scaling) {
      case RopeSpec::Scaling::kNone: break;
      case RopeSpec::Scaling::kLinear: frequency /= r.factor; break;
      case RopeSpec::Scaling::kYarn:
        frequency = mixed(frequency, r.factor,
                          std::clamp((i - yarn.low) / (yarn.high - yarn.low), 0.0, 1.0));
        break;
      case RopeSpec::Scaling::kLlama3: frequency = llama3(frequency, r); break;
    }
    const auto at = static_cast<std::size_t>(i);
    if (!r.factors.empty()) frequency /= r.factors[at];
    frequencies[at] = static_cast<float>(frequency);
  }
  return frequencies;
}

RopeTables::RopeTables(const RopeSpec& rope, std::int32_t positions) {
  const auto frequencies = rope_inverse_frequencies(rope);
  const std::size_t half = frequencies.size();
  cos_.resize(static_cast<std::size_t>(positions) * half);
  sin_.resize(cos_.size());
  for (std::size_t p = 0; p < static_cast<std::size_t>(positions); ++p)
    for (std::size_t i = 0; i < half; ++i) {
      // The product is rounded to float32, because that is what the published models were trained
      // with.
      const float angle = static_cast<float>(p) * frequencies[i];
      const auto turn = kernels::sincos_f64(angle);
      cos_[p * half + i] = static_cast<float>(turn.cos * rope.magnitude);
      sin_[p * half + i] = static_cast<float>(turn.sin * rope.magnitude);
    }
}

}  // namespace troupe
