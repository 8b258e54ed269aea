#include "kernels/moe_gate.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "support.h"
#include "tests/kernels/twin_rows.h"

namespace troupe::kernels {
namespace {

struct GateChoice {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

GateChoice gate(Stream& stream, const GateConfig& c, const std::vector<float>& logits,
                const float* bias = nullptr) {
  const std::size_t rows = logits.size() / static_cast<std::size_t>(c.experts);
  const std::size_t count = rows * static_cast<std::size_t>(c.top_k);
  GateChoice out{std::vector<std::int32_t>(count), std::vector<float>(count)};
  std::vector<float> x = logits;
  moe_gate(stream, c, matrix(x, static_cast<std::int64_t>(rows)), bias, out.ids.data(),
           out.weights.data());
  return out;
}

/// Indices by falling value, the lowest first among equals, of which the first k.
std::vector<std::size_t> best(const std::vector<double>& v, std::size_t k) {
  std::vector<std::size_t> order(v.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return v[a] > v[b]; });
  order.resize(k);
  return order;
}

/// The published routers, written with sorts in float64.
std::vector<std::pair<std::size_t, double>> exact(const GateConfig& c, const float* logits,
                                                  const float* bias) {
  const auto n = static_cast<std::size_t>(c.experts);
  std::vector<double> score(n), choice(n);
  double total = 0;
  for (std::size_t e = 0; e < n; ++e) total += std::exp(static_cast<double>(logits[e]));
  for (std::size_t e = 0; e < n; ++e) {
    const double x = std::exp(static_cast<double>(logits[e]));
    score[e] = c.scoring == GateScoring::kSigmoid ? x / (1 + x) : x / total;
    if (c.scoring == GateScoring::kSoftmaxChosen) score[e] = static_cast<double>(logits[e]);
    choice[e] = score[e] + (bias != nullptr ? static_cast<double>(bias[e]) : 0);
  }
  if (c.method != GateMethod::kGreedy) {
    const std::size_t size = n / static_cast<std::size_t>(c.n_group);
    std::vector<double> groups;
    for (std::size_t g = 0; g < n; g += size) {
      std::vector<double> in(choice.begin() + static_cast<long>(g),
                             choice.begin() + static_cast<long>(g + size));
      std::sort(in.rbegin(), in.rend());
      groups.push_back(c.method == GateMethod::kNoauxTc && size > 1 ? in[0] + in[1] : in[0]);
    }
    const auto kept = best(groups, static_cast<std::size_t>(c.topk_group));
    for (std::size_t e = 0; e < n; ++e)
      if (std::find(kept.begin(), kept.end(), e / size) == kept.end()) choice[e] = 0;
  }
  auto ids = best(choice, static_cast<std::size_t>(c.top_k));
  std::sort(ids.begin(), ids.end());
  if (c.scoring == GateScoring::kSoftmaxChosen) {
    double of_chosen = 0;
    for (std::size_t e : ids) of_chosen += score[e] = std::exp(score[e]);
    for (std::size_t e : ids) score[e] /= of_chosen;
  }
  double sum = 1e-20;
  for (std::size_t e : ids) sum += score[e];
  std::vector<std::pair<std::size_t, double>> out;
  for (std::size_t e : ids)
    out.push_back({e, score[e] / (c.norm_topk_prob ? sum : 1) *
                          static_cast<double>(c.routed_scaling_factor)});
  return out;
}

const std::vector<GateConfig> kConfigs = {
    {GateScoring::kSigmoid, GateMethod::kNoauxTc, 256, 8, 4, 8, true, 2.5f},
    {GateScoring::kSigmoid, GateMethod::kNoauxTc, 16, 4, 2, 4, true, 1.0f},
    {GateScoring::kSigmoid, GateMethod::kNoauxTc, 8, 1, 1, 3, false, 1.0f},
    {GateScoring::kSoftmax, GateMethod::kGreedy, 64, 1, 1, 6, false, 1.0f},
    {GateScoring::kSoftmax, GateMethod::kGroupLimitedGreedy, 160, 8, 3, 6, false, 16.0f},
    {GateScoring::kSoftmax, GateMethod::kGreedy, 5, 1, 1, 5, true, 1.0f},
    {GateScoring::kSigmoid, GateMethod::kNoauxTc, 4, 4, 1, 1, true, 1.0f},
    {GateScoring::kSoftmaxChosen, GateMethod::kGreedy, 32, 1, 1, 4, false, 1.0f},
};

TEST_CASE("the gate chooses what the published routers choose") {
  TestStream stream({}, 2);
  for (const GateConfig& c : kConfigs) {
    const auto n = static_cast<std::size_t>(c.experts), k = static_cast<std::size_t>(c.top_k);
    const auto logits = random_values(50 * n, 1, 4);
    // Negative biases make masked experts, which score 0, the better choice at times.
    const auto bias = random_values(n, 2, 0.8f);
    for (const float* b : {static_cast<const float*>(nullptr), bias.data()}) {
      INFO("experts=" << c.experts << " bias=" << (b != nullptr));
      const GateChoice got = gate(stream, c, logits, b);
      for (std::size_t r = 0; r < 50; ++r) {
        const auto expected = exact(c, logits.data() + r * n, b);
        for (std::size_t i = 0; i < k; ++i) {
          CHECK(got.ids[r * k + i] == static_cast<int>(expected[i].first));
          CHECK(got.weights[r * k + i] == doctest::Approx(expected[i].second).epsilon(2e-6));
        }
      }
    }
  }
}

TEST_CASE("the gate has the bits of its twin, of any numbers and for every family") {
  for (const Family& f : families())
    for (const GateConfig& c : kConfigs) {
      TestStream stream(f, 2);
      std::vector<float> logits = Random(5).wild_values(60 * c.experts);
      for (std::size_t i = 0; i < logits.size(); i += 7)
        logits[i] = i % 3 == 0 ? std::nanf("") : i % 3 == 1 ? INFINITY : -90.0f;
      const auto bias = random_values(static_cast<std::size_t>(c.experts), 2, 0.8f);
      const GateChoice got = gate(stream, c, logits, bias.data());
      GateChoice expected;
      for (std::size_t r = 0; r < 60; ++r) {
        const auto n = static_cast<std::size_t>(c.experts);
        std::vector<float> row(n);
        std::copy_n(logits.begin() + static_cast<std::ptrdiff_t>(r * n), n, row.begin());
        const auto one = twin::gate(c, row, bias);
        expected.ids.insert(expected.ids.end(), one.ids.begin(), one.ids.end());
        expected.weights.insert(expected.weights.end(), one.weights.begin(), one.weights.end());
      }
      CHECK(got.ids == expected.ids);
      CHECK(differences(got.weights, expected.weights) == 0);
    }
}

TEST_CASE("of equal scores the lowest expert wins") {
  TestStream stream(Family{});
  for (GateConfig c : kConfigs) {
    const std::vector<float> equal(static_cast<std::size_t>(c.experts), 0.5f);
    const GateChoice got = gate(stream, c, equal);
    for (int i = 0; i < c.top_k; ++i) CHECK(got.ids[static_cast<std::size_t>(i)] == i);
  }
}

TEST_CASE("logits that are not numbers still choose distinct experts") {
  TestStream stream(Family{});
  for (const GateConfig& c : kConfigs) {
    for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
      std::vector<float> logits(static_cast<std::size_t>(c.experts), bad);
      const GateChoice got = gate(stream, c, logits);
      const std::set<std::int32_t> distinct(got.ids.begin(), got.ids.end());
      CHECK(distinct.size() == got.ids.size());
      CHECK(*distinct.begin() >= 0);
      CHECK(*distinct.rbegin() < c.experts);
    }
  }
}

TEST_CASE("the gate treats every row by itself") {
  const GateConfig& c = kConfigs[0];
  const auto logits = random_values(512 * 256, 3, 4);
  const auto bias = random_values(256, 4, 0.1f);
  TestStream one(Family{});
  const GateChoice all = gate(one, c, logits, bias.data());
  for (int threads = 1; threads <= 4; ++threads) {
    TestStream stream({}, threads);
    for (std::size_t rows : kRowCounts) {
      const std::vector<float> some(logits.begin(), logits.begin() + static_cast<long>(rows * 256));
      const GateChoice got = gate(stream, c, some, bias.data());
      CHECK(std::equal(got.ids.begin(), got.ids.end(), all.ids.begin()));
      CHECK(same_bits(got.weights.data(), all.weights.data(), got.weights.size()));
    }
  }
}

}  // namespace
}  // namespace troupe::kernels
