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
double correction_pair(double rotations, const ModelConfig& c) {
  const double context = c.yarn->original_max_position_embeddings;
  const double pair = c.qk_rope_head_dim * log_f64(context / (rotations * kTwoPi)) /
                      (2 * log_f64(c.rope_theta));
  return std::clamp(pair, -1e9, 1e9);
}

}  // namespace

double yarn_mscale(double scale, double mscale) {
  return scale <= 1 ? 1.0 : 0.1 * mscale * log_f64(scale) + 1.0;
}

std::vector<float> rope_inverse_frequencies(const ModelConfig& c) {
  const int dim = c.qk_rope_head_dim, half = dim / 2;
  std::vector<float> frequencies(static_cast<std::size_t>(half));
  double low = 0, high = 0;
  if (c.yarn) {
    low = std::max(floor_of(correction_pair(c.yarn->beta_fast, c)), 0.0);
    high = std::min(ceil_of(correction_pair(c.yarn->beta_slow, c)), dim - 1.0);
    if (low == high) high += 0.001;  // as published, against a division by zero
  }
  for (int i = 0; i < half; ++i) {
    const double own = 1.0 / pow_f64(c.rope_theta, 2.0 * i / dim);
    double frequency = own;
    if (c.yarn) {
      // Short wavelengths keep their frequency, long ones are stretched, those between are mixed.
      const double stretched = own / c.yarn->factor;
      const double ramp = std::clamp((i - low) / (high - low), 0.0, 1.0);
      frequency = stretched * ramp + own * (1 - ramp);
    }
    frequencies[static_cast<std::size_t>(i)] = static_cast<float>(frequency);
  }
  return frequencies;
}

double rope_attention_factor(const ModelConfig& c) {
  if (!c.yarn) return 1.0;
  const YarnScaling& y = *c.yarn;
  if (y.attention_factor) return *y.attention_factor;
  if (y.mscale != 0 && y.mscale_all_dim != 0)
    return yarn_mscale(y.factor, y.mscale) / yarn_mscale(y.factor, y.mscale_all_dim);
  return yarn_mscale(y.factor, 1.0);
}

float attention_scale(const ModelConfig& c) {
  double scale = 1.0 / kernels::sqrt_f64(c.qk_head_dim());
  if (c.yarn && c.yarn->mscale_all_dim != 0) {
    const double mscale = yarn_mscale(c.yarn->factor, c.yarn->mscale_all_dim);
    scale *= mscale * mscale;
  }
  return static_cast<float>(scale);
}

RopeTables::RopeTables(const ModelConfig& c, std::int32_t positions)
    : positions_(static_cast<std::size_t>(positions)),
      half_(static_cast<std::size_t>(c.qk_rope_head_dim) / 2),
      cos_(positions_ * half_),
      sin_(positions_ * half_) {
  const auto frequencies = rope_inverse_frequencies(c);
  const double factor = rope_attention_factor(c);
  for (std::size_t p = 0; p < positions_; ++p)
    for (std::size_t i = 0; i < half_; ++i) {
      // The product is rounded to float32, because that is what the published models were trained
      // with.
      const float angle = static_cast<float>(p) * frequencies[i];
      const auto turn = kernels::sincos_f64(angle);
      cos_[p * half_ + i] = static_cast<float>(turn.cos * factor);
      sin_[p * half_ + i] = static_cast<float>(turn.sin * factor);
    }
}

}  // namespace troupe
