#include "tests/kernels/twin.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/scalar_math.h"
#include "runtime/bf16.h"
#include "runtime/xxh3.h"

namespace troupe::kernels {
namespace {

template <class T>
std::uint64_t digest(const std::vector<T>& v, std::uint64_t before = 0) {
  return xxh3_64(v.data(), v.size() * sizeof(T), before);
}

template <class Sum>
Sum tree(std::vector<Sum> sums) {
  for (std::size_t step = 1; step < sums.size(); step *= 2)
    for (std::size_t i = 0; i + step < sums.size(); i += 2 * step) sums[i] += sums[i + step];
  return sums[0];
}

/// Element i belongs to running sum i % lanes; the upper half is added to the lower until one is
/// left.
template <class Sum, class Term>
Sum lanes(std::size_t count, std::size_t lanes, const Term& term) {
  std::vector<Sum> sum(lanes, Sum{0});
  for (std::size_t i = 0; i < count; ++i) sum[i % lanes] += term(i);
  for (std::size_t half = lanes / 2; half > 0; half /= 2)
    for (std::size_t j = 0; j < half; ++j) sum[j] += sum[j + half];
  return sum[0];
}

/// tdpbf16ps: in 32 k the even and the odd ones each as a chain from zero, their sum added.
float amx_sum(const std::vector<float>& x, const std::vector<float>& w) {
  float sum = 0;
  for (std::size_t block = 0; block < x.size(); block += 32) {
    float part[2] = {0, 0};
    for (std::size_t i = block; i < std::min(block + 32, x.size()); ++i)
      part[i % 2] = std::fma(x[i], w[i], part[i % 2]);
    sum += part[0] + part[1];
  }
  return sum;
}

float slice_sum(const TwinProduct& p, std::vector<float> x, std::vector<float> w) {
  float sum = 0;
  if (p.rounds()) {
    std::transform(x.begin(), x.end(), x.begin(), rounded_to_bf16);
    std::transform(w.begin(), w.end(), w.begin(), rounded_to_bf16);
    if (p.numerics == Numerics::kAmxBf16) return amx_sum(x, w);
    x.push_back(0);
    w.push_back(0);
    for (std::size_t i = 0; i + 1 < x.size(); i += 2) sum = twin_dot_pair(sum, &x[i], &w[i]);
    return sum;
  }
  for (std::size_t i = 0; i < x.size(); ++i)
    sum = p.numerics == Numerics::kReference ? sum + x[i] * w[i] : std::fma(x[i], w[i], sum);
  return sum;
}

struct Twin {
  Numerics numerics;
  Integers in;

  std::uint64_t operator()(const LinearQuestion& q) {
    const auto k = static_cast<std::size_t>(q.k), n = static_cast<std::size_t>(q.n);
    const TwinProduct product{numerics, q.options.slices, q.options.full_precision};
    const std::vector<float> x = in.values(q.rows * q.heads * k);
    std::vector<float> y(q.rows * q.heads * n);
    for (std::size_t h = 0; h < q.heads; ++h) {
      const std::vector<float> w = in.weights(q.type, n * k);
      for (std::size_t r = 0; r < q.rows; ++r)
        for (std::size_t i = 0; i < n; ++i)
          y[(r * q.heads + h) * n + i] = product(&x[(r * q.heads + h) * k], &w[i * k], k);
    }
    return digest(y);
  }

  std::uint64_t operator()(const FfnQuestion& q) {
    const auto hidden = static_cast<std::size_t>(q.hidden);
    const auto inner = static_cast<std::size_t>(q.inner);
    const TwinProduct product{numerics};
    const std::vector<float> x = in.values(q.rows * hidden);
    std::vector<float> y;
    for (std::size_t e = 0; e < q.experts; ++e) {
      const std::vector<float> gate = in.weights(q.type, inner * hidden);
      const std::vector<float> up = in.weights(q.type, inner * hidden);
      const std::vector<float> down = in.weights(q.type, inner * hidden);
      for (std::size_t r = e; r < q.rows; ++r) {
        std::vector<float> h(inner);
        for (std::size_t i = 0; i < inner; ++i) {
          const float g = product(&x[r * hidden], &gate[i * hidden], hidden);
          h[i] = g * sigmoid_f32(g) * product(&x[r * hidden], &up[i * hidden], hidden);
        }
        for (std::size_t i = 0; i < hidden; ++i)
          y.push_back(product(h.data(), &down[i * inner], inner));
      }
    }
    return digest(y);
  }

  std::uint64_t operator()(const AttentionQuestion& q) {
    return digest(twin_attention(numerics, q, in));
  }

  std::uint64_t operator()(const GateQuestion& q) {
    const auto& c = q.config;
    const auto experts = static_cast<std::size_t>(c.experts);
    const std::vector<float> logits = in.values(q.rows * experts);
    const std::vector<float> bias = in.values(experts);
    std::vector<std::int32_t> all_ids;
    std::vector<float> all_weights;
    for (std::size_t r = 0; r < q.rows; ++r) {
      const std::vector<float> score = scores(c, &logits[r * experts]);
      std::vector<float> choice(experts);
      for (std::size_t e = 0; e < experts; ++e) choice[e] = score[e] + bias[e];
      limit_groups(c, choice);
      const std::vector<std::int32_t> ids = best(choice, c.top_k);
      float sum = 0;
      for (const auto id : ids) sum += score[static_cast<std::size_t>(id)];
      for (const auto id : ids) {
        float weight = score[static_cast<std::size_t>(id)];
        if (c.norm_topk_prob) weight /= sum + 1e-20f;
        all_weights.push_back(weight * c.routed_scaling_factor);
      }
      all_ids.insert(all_ids.end(), ids.begin(), ids.end());
    }
    return digest(all_weights, digest(all_ids));
  }

  static std::vector<float> scores(const GateConfig& c, const float* logits) {
    std::vector<float> score(logits, logits + c.experts);
    if (c.scoring == GateScoring::kSigmoid) {
      for (float& s : score) s = sigmoid_f32(s);
      return score;
    }
    const float highest = *std::max_element(score.begin(), score.end());
    float sum = 0;
    for (float& s : score) sum += s = exp_f32(s - highest);
    for (float& s : score) s /= sum;
    return score;
  }

  /// The ids of the k largest, rising; ties to the lowest.
  static std::vector<std::int32_t> best(const std::vector<float>& values, int k) {
    std::vector<std::int32_t> ids(values.size());
    std::iota(ids.begin(), ids.end(), 0);
    std::stable_sort(ids.begin(), ids.end(), [&](auto a, auto b) {
      return values[static_cast<std::size_t>(a)] > values[static_cast<std::size_t>(b)];
    });
    ids.resize(static_cast<std::size_t>(k));
    std::sort(ids.begin(), ids.end());
    return ids;
  }

  static void limit_groups(const GateConfig& c, std::vector<float>& choice) {
    if (c.method == GateMethod::kGreedy) return;
    const auto size = static_cast<std::ptrdiff_t>(c.experts / c.n_group);
    std::vector<float> groups;
    for (int g = 0; g < c.n_group; ++g) {
      std::vector<float> of(choice.begin() + g * size, choice.begin() + (g + 1) * size);
      std::sort(of.rbegin(), of.rend());
      groups.push_back(c.method == GateMethod::kNoauxTc ? of[0] + of[1] : of[0]);
    }
    const std::vector<std::int32_t> chosen = best(groups, c.topk_group);
    for (int g = 0; g < c.n_group; ++g)
      if (!std::binary_search(chosen.begin(), chosen.end(), g))
        std::fill_n(choice.begin() + g * size, size, 0.0f);
  }

  std::uint64_t operator()(const RowsQuestion& q) {
    switch (q.op) {
      case RowOp::kRopeInterleaved: return rope(q, true);
      case RowOp::kRopeHalves: return rope(q, false);
      case RowOp::kEmbeddingBf16: return embedding(q, WeightType::kBf16);
      case RowOp::kEmbeddingF32: return embedding(q, WeightType::kF32);
      case RowOp::kCombine: return combine(q);
      case RowOp::kLogSoftmax: return log_softmax(q);
      default: break;
    }
    std::vector<float> a = in.values(q.rows * q.cols);
    std::vector<float> b = in.values(q.rows * q.cols);
    if (q.op == RowOp::kToWire) {
      std::transform(a.begin(), a.end(), a.begin(), rounded_to_bf16);
      std::transform(b.begin(), b.end(), b.begin(), rounded_to_bf16);
      return digest(a, digest(b));
    }
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (q.op == RowOp::kResidual) a[i] += b[i];
      if (q.op == RowOp::kSilu) a[i] = a[i] * sigmoid_f32(a[i]) * b[i];
    }
    for (std::size_t r = 0; r < q.rows && q.op == RowOp::kNorm; ++r) {
      float* x = &a[r * q.cols];
      const float squares = lanes<float>(q.cols, 16, [&](std::size_t i) { return x[i] * x[i]; });
      const float mean = squares / static_cast<float>(q.cols);
      const float scale = 1.0f / std::sqrt(mean + RowsQuestion::kEpsilon);
      for (std::size_t i = 0; i < q.cols; ++i) x[i] = b[i] * (x[i] * scale);
    }
    return digest(a);
  }

  std::uint64_t rope(const RowsQuestion& q, bool interleaved) {
    const std::size_t half = q.cols / 2;
    const std::vector<float> cos = in.values(q.rows * half), sin = in.values(q.rows * half);
    std::vector<float> x = in.values(q.rows * 2 * q.cols);
    for (std::size_t head = 0; head < q.rows * 2; ++head)
      for (std::size_t i = 0; i < half; ++i) {
        const std::size_t at = head / 2 * half + i, from = head * q.cols;
        float& first = x[from + (interleaved ? 2 * i : i)];
        float& second = x[from + (interleaved ? 2 * i + 1 : i + half)];
        const float a = first, b = second;
        first = a * cos[at] - b * sin[at];
        second = b * cos[at] + a * sin[at];
      }
    return digest(x);
  }

  std::uint64_t embedding(const RowsQuestion& q, WeightType type) {
    const std::vector<float> table = in.weights(type, (q.rows + 2) * q.cols);
    const auto first = table.begin() + static_cast<std::ptrdiff_t>(q.cols);
    return digest(std::vector<float>(first, first + static_cast<std::ptrdiff_t>(q.rows * q.cols)));
  }

  std::uint64_t combine(const RowsQuestion& q) {
    const bool f32 = wire_type(numerics) == WireType::kF32;
    std::vector<float> y = in.values(q.rows * q.cols);
    const std::vector<float> outputs = in.weights(f32 ? WeightType::kF32 : WeightType::kBf16,
                                                  q.rows * RowsQuestion::kOutputs * q.cols);
    for (std::size_t o = 0; o < q.rows * RowsQuestion::kOutputs; ++o) {
      const float weight = in.value();
      for (std::size_t i = 0; i < q.cols; ++i)
        y[o / RowsQuestion::kOutputs * q.cols + i] += weight * outputs[o * q.cols + i];
    }
    return digest(y);
  }

  std::uint64_t log_softmax(const RowsQuestion& q) {
    const std::vector<float> x = in.values(q.rows * q.cols);
    std::vector<double> found;
    for (std::size_t r = 0; r < q.rows; ++r) {
      const float* row = &x[r * q.cols];
      const auto highest = static_cast<double>(*std::max_element(row, row + q.cols));
      const double sum = lanes<double>(q.cols, 8, [&](std::size_t i) {
        return exp_f64(static_cast<double>(row[i]) - highest);
      });
      found.insert(found.end(), {highest, sum, log_f64(sum)});
    }
    return digest(found);
  }
};

}  // namespace

float rounded_to_bf16(float x) { return to_float(troupe::to_bf16(x)); }

float twin_dot_pair(float sum, const float* x, const float* w) {
  return std::fma(x[0], w[0], std::fma(x[1], w[1], sum));
}

bool TwinProduct::rounds() const {
  return !full_precision &&
         (numerics == Numerics::kAvx512Bf16 || numerics == Numerics::kAmxBf16);
}

float TwinProduct::operator()(const float* x, const float* w, std::size_t k) const {
  const std::size_t each = k / static_cast<std::size_t>(slices);
  std::vector<float> sums;
  for (std::size_t i = 0; i < k; i += each)
    sums.push_back(slice_sum(*this, {x + i, x + i + each}, {w + i, w + i + each}));
  return tree(std::move(sums));
}

std::uint64_t twin_answer(Numerics numerics, std::size_t question) {
  return std::visit(Twin{numerics, inputs_of(question)}, known_questions()[question]);
}

}  // namespace troupe::kernels
