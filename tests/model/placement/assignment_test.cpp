#include "model/placement/assignment.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace troupe {
namespace {

using Values = std::vector<std::vector<std::int64_t>>;

Values random_values(std::size_t n, std::int64_t most, std::mt19937& random) {
  Values values(n, std::vector<std::int64_t>(n));
  for (auto& row : values) {
    for (auto& v : row) v = static_cast<std::int64_t>(random() % static_cast<unsigned>(most));
  }
  return values;
}

std::int64_t total(const Values& values, const std::vector<std::size_t>& column) {
  std::int64_t sum = 0;
  for (std::size_t r = 0; r < values.size(); ++r) sum += values[r][column[r]];
  return sum;
}

TEST_CASE("assignments are as good as the best of all permutations") {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const std::size_t n = 1 + round % 6;
    const Values values = random_values(n, round % 2 ? 3 : 1000, random);
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::int64_t best = 0;
    do {
      best = std::max(best, total(values, order));
    } while (std::next_permutation(order.begin(), order.end()));
    CHECK(total(values, best_assignment(values)) == best);
  }
  CHECK(best_assignment({}).empty());
}

TEST_CASE("beyond the exact size every row still gets a column of its own") {
  std::mt19937 random(7);
  const Values values = random_values(kExactAssignmentMax + 10, 2, random);
  auto column = best_assignment(values);
  std::sort(column.begin(), column.end());
  for (std::size_t i = 0; i < column.size(); ++i) CHECK(column[i] == i);
}

}  // namespace
}  // namespace troupe
