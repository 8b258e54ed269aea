#include "model/placement/assignment.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace troupe {
namespace {

using Values = std::vector<std::vector<std::int64_t>>;
constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

/// The shortest augmenting path for each row in turn, over costs reduced by prices of rows and
/// columns. Costs are the negative values.
class Hungarian {
 public:
  explicit Hungarian(const Values& value)
      : value_(value),
        n_(value.size()),
        row_price_(n_, 0),
        column_price_(n_, 0),
        row_of_(n_, kNone) {}

  std::vector<std::size_t> solve() {
    for (std::size_t row = 0; row < n_; ++row) augment(row);
    std::vector<std::size_t> column_of(n_);
    for (std::size_t c = 0; c < n_; ++c) column_of[row_of_[c]] = c;
    return column_of;
  }

 private:
  std::int64_t reduced(std::size_t row, std::size_t column) const {
    return -value_[row][column] - row_price_[row] - column_price_[column];
  }

  void augment(std::size_t start) {
    constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max();
    std::vector<std::int64_t> distance(n_, kFar);
    std::vector<std::size_t> previous(n_, kNone);  // the column before, on the way to each column
    std::vector<bool> done(n_, false);
    std::vector<std::size_t> visited;  // columns, in the order of their distance
    std::size_t row = start, from = kNone, last = kNone;
    std::int64_t travelled = 0;
    while (last == kNone) {
      std::size_t nearest = kNone;
      for (std::size_t c = 0; c < n_; ++c) {
        if (done[c]) continue;
        const std::int64_t d = travelled + reduced(row, c);
        if (d < distance[c]) {
          distance[c] = d;
          previous[c] = from;
        }
        if (nearest == kNone || distance[c] < distance[nearest]) nearest = c;
      }
      done[nearest] = true;
      visited.push_back(nearest);
      travelled = distance[nearest];
      if (row_of_[nearest] == kNone) {
        last = nearest;
      } else {
        row = row_of_[nearest];
        from = nearest;
      }
    }
    row_price_[start] += travelled;
    for (const std::size_t c : visited) {
      const std::int64_t slack = travelled - distance[c];
      if (row_of_[c] != kNone) row_price_[row_of_[c]] += slack;
      column_price_[c] -= slack;
    }
    for (std::size_t c = last; c != kNone; c = previous[c])
      row_of_[c] = previous[c] == kNone ? start : row_of_[previous[c]];
  }

  const Values& value_;
  std::size_t n_;
  std::vector<std::int64_t> row_price_, column_price_;
  std::vector<std::size_t> row_of_;  // of each column
};

/// The largest values first; what is left over in order.
std::vector<std::size_t> greedy(const Values& value) {
  std::vector<std::tuple<std::int64_t, std::size_t, std::size_t>> entries;
  for (std::size_t r = 0; r < value.size(); ++r) {
    for (std::size_t c = 0; c < value.size(); ++c) {
      if (value[r][c] > 0) entries.emplace_back(-value[r][c], r, c);
    }
  }
  std::sort(entries.begin(), entries.end());
  std::vector<std::size_t> column_of(value.size(), kNone);
  std::vector<bool> taken(value.size(), false);
  for (const auto& [negative, r, c] : entries) {
    if (column_of[r] != kNone || taken[c]) continue;
    column_of[r] = c;
    taken[c] = true;
  }
  std::size_t next = 0;
  for (auto& column : column_of) {
    if (column != kNone) continue;
    while (taken[next]) ++next;
    column = next++;
  }
  return column_of;
}

}  // namespace

std::vector<std::size_t> best_assignment(const Values& value) {
  return value.size() <= kExactAssignmentMax ? Hungarian(value).solve() : greedy(value);
}

}  // namespace troupe
