#include "tests/kernels/twin_rows.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/scalar_math.h"

namespace troupe::kernels::twin {
namespace {

/// The upper half is added to the lower until one is left.
template <class Sum>
Sum halved(std::vector<Sum> lanes) {
  for (std::size_t half = lanes.size() / 2; half > 0; half /= 2)
    for (std::size_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  return lanes[0];
}

float lowest_if_nan(float x) { return std::isnan(x) ? -HUGE_VALF : x; }

/// The ids of the k largest, rising; ties to the lowest.
std::vector<std::int32_t> best(const std::vector<float>& values, int k) {
  std::vector<std::int32_t> ids(values.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](auto a, auto b) {
    return values[static_cast<std::size_t>(a)] > values[static_cast<std::size_t>(b)];
  });
  ids.resize(static_cast<std::size_t>(k));
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::vector<float> softmax(const std::vector<float>& x) {
  float highest = -HUGE_VALF, sum = 0;
  for (const float v : x) highest = std::max(highest, lowest_if_nan(v));
  std::vector<float> y;
  for (const float v : x) sum += y.emplace_back(exp_f32(v - highest));
  for (float& v : y) v /= sum;
  return y;
}

void limit_groups(const GateConfig& c, std::vector<float>& choice) {
  if (c.method == GateMethod::kGreedy) return;
  const auto size = static_cast<std::ptrdiff_t>(c.experts / c.n_group);
  std::vector<float> groups;
  for (int g = 0; g < c.n_group; ++g) {
    std::vector<float> of(choice.begin() + g * size, choice.begin() + (g + 1) * size);
    std::sort(of.rbegin(), of.rend());
    groups.push_back(c.method == GateMethod::kNoauxTc && size > 1 ? lowest_if_nan(of[0] + of[1])
                                                                  : of[0]);
  }
  const std::vector<std::int32_t> chosen = best(groups, c.topk_group);
  for (int g = 0; g < c.n_group; ++g)
    if (!std::binary_search(chosen.begin(), chosen.end(), g))
      std::fill_n(choice.begin() + g * size, size, -__builtin_inff());
}

}  // namespace

std::vector<float> norm(Numerics numerics, const std::vector<float>& x,
                        const std::vector<float>& weight, float epsilon) {
  float squares = 0;
  if (numerics == Numerics::kReference) {
    for (const float v : x) squares += v * v;
  } else {
    std::vector<float> lanes(128);
    for (std::size_t i = 0; i < x.size(); ++i)
      lanes[i % 128] = std::fma(x[i], x[i], lanes[i % 128]);
    squares = halved(lanes);
  }
  const float scale = 1.0f / std::sqrt(squares / static_cast<float>(x.size()) + epsilon);
  std::vector<float> y;
  for (std::size_t i = 0; i < x.size(); ++i) y.push_back(x[i] * scale * weight[i]);
  return y;
}

std::vector<float> rope(const std::vector<float>& x, const std::vector<float>& cos,
                        const std::vector<float>& sin, RopePairs pairs) {
  std::vector<float> y = x;
  for (std::size_t i = 0; i < cos.size(); ++i) {
    const bool interleaved = pairs == RopePairs::kInterleaved;
    const std::size_t first = interleaved ? 2 * i : i;
    const std::size_t second = interleaved ? first + 1 : i + cos.size();
    y[first] = x[first] * cos[i] - x[second] * sin[i];
    y[second] = x[second] * cos[i] + x[first] * sin[i];
  }
  return y;
}

Choice gate(const GateConfig& c, const std::vector<float>& logits, const std::vector<float>& bias) {
  std::vector<float> score = logits;
  if (c.scoring == GateScoring::kSigmoid)
    for (float& s : score) s = 1.0f / (1.0f + exp_f32(-s));
  if (c.scoring == GateScoring::kSoftmax) score = softmax(logits);
  std::vector<float> choice;
  for (std::size_t e = 0; e < score.size(); ++e)
    choice.push_back(lowest_if_nan(bias.empty() ? score[e] : score[e] + bias[e]));
  limit_groups(c, choice);
  Choice out{best(choice, c.top_k), {}};
  for (const auto id : out.ids) out.weights.push_back(score[static_cast<std::size_t>(id)]);
  if (c.scoring == GateScoring::kSoftmaxChosen) out.weights = softmax(out.weights);
  float sum = 0;
  for (const float w : out.weights) sum += w;
  for (float& w : out.weights) {
    if (c.norm_topk_prob) w /= sum + 1e-20f;
    w *= c.routed_scaling_factor;
  }
  return out;
}

std::vector<double> log_softmax(const std::vector<float>& logits) {
  const auto highest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  std::vector<double> lanes(8);
  for (std::size_t i = 0; i < logits.size(); ++i)
    lanes[i % 8] += exp_f64(static_cast<double>(logits[i]) - highest);
  const double sum = halved(lanes);
  return {highest, sum, log_f64(sum)};
}

}  // namespace troupe::kernels::twin
