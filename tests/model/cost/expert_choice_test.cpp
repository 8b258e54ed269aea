// Which experts rows choose, on average.

#include "model/cost/expert_choice.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

namespace troupe {
namespace {

double sum_of(const ExpertChances& c) { return std::accumulate(c.begin(), c.end(), 0.0); }

TEST_CASE("distinct experts that a batch hits") {
  struct Case {
    int experts, top_k;
    double rows, hits;
  };
  // 256 (1 - (1 - 8/256)^rows).
  for (const Case& c : {Case{256, 8, 1, 8},
                        {256, 8, 16, 101.95},
                        {256, 8, 32, 163.31},
                        {256, 8, 128, 251.60},
                        {64, 8, 32, 63.107},
                        {128, 8, 4, 29.13},
                        {8, 2, 1, 2},
                        {4, 4, 3, 4}}) {
    CAPTURE(c.rows);
    CHECK(expected_hits(chances_of_skew(c.experts, c.top_k, 1), c.rows) ==
          doctest::Approx(c.hits).epsilon(0.001));
  }
}

TEST_CASE("expected hits are what is drawn") {
  const int experts = 64, top_k = 8, rows = 6, rounds = 2000;
  std::mt19937 random(7);
  std::vector<int> all(experts);
  std::iota(all.begin(), all.end(), 0);
  double hits = 0;
  for (int round = 0; round < rounds; ++round) {
    std::set<int> hit;
    for (int row = 0; row < rows; ++row) {
      std::shuffle(all.begin(), all.end(), random);
      hit.insert(all.begin(), all.begin() + top_k);
    }
    hits += static_cast<double>(hit.size());
  }
  CHECK(expected_hits(chances_of_skew(experts, top_k, 1), rows) ==
        doctest::Approx(hits / rounds).epsilon(0.01));
}

TEST_CASE("a skew is that of the busiest over the mean") {
  for (const double skew : {1.0, 1.2, 2.0, 5.0, 16.0, 32.0}) {
    const ExpertChances c = chances_of_skew(256, 8, skew);
    CAPTURE(skew);
    CHECK(sum_of(c) == doctest::Approx(8));
    CHECK(skew_of(c) == doctest::Approx(skew));
    CHECK(*std::max_element(c.begin(), c.end()) <= 1);
    CHECK(c[0] == *std::max_element(c.begin(), c.end()));
    CHECK(std::is_sorted(c.rbegin(), c.rend()));
    // Fewer of them are hit.
    CHECK(expected_hits(c, 32) <= expected_hits(chances_of_skew(256, 8, 1), 32));
  }
  // Layers differ in which is the busiest.
  const ExpertChances turned = chances_of_skew(256, 8, 2, 300);
  CHECK(turned[44] == *std::max_element(turned.begin(), turned.end()));
  CHECK(skew_of(turned) == doctest::Approx(2));
}

TEST_CASE("what was counted") {
  const std::vector<double> counts = {30, 10, 20, 20};
  const ExpertChances c = chances_of_counts(counts, 2);
  CHECK(c == ExpertChances{0.75, 0.25, 0.5, 0.5});
  CHECK(skew_of(c) == 1.5);
  // Nothing was counted; a count that no gate can give.
  CHECK(chances_of_counts(std::vector<double>(4, 0.0), 2) == ExpertChances(4, 0.5));
  CHECK(chances_of_counts(std::vector<double>{9, 1, 0, 0}, 2)[0] == 1);
}

}  // namespace
}  // namespace troupe
