#include "model/tokenizer/code_point_set.h"

#include <algorithm>
#include <cassert>

namespace troupe {

void CodePointSet::add(char32_t first, char32_t last) {
  assert(first <= last && last <= kLast);
  const bool behind = ranges_.empty() || ranges_.back().last + 1 < first;
  ranges_.push_back({first, last});
  if (!behind) join();
}

void CodePointSet::add(const CodePointSet& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  join();
}

void CodePointSet::join() {
  std::sort(ranges_.begin(), ranges_.end(),
            [](const Range& a, const Range& b) { return a.first < b.first; });
  std::vector<Range> joined;
  for (const Range& range : ranges_) {
    if (!joined.empty() && range.first <= joined.back().last + 1) {
      joined.back().last = std::max(joined.back().last, range.last);
    } else {
      joined.push_back(range);
    }
  }
  ranges_ = std::move(joined);
}

CodePointSet CodePointSet::complement() const {
  CodePointSet rest;
  char32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) rest.add(next, range.first - 1);
    next = range.last + 1;
  }
  if (next <= kLast) rest.add(next, kLast);
  return rest;
}

CodePointSet CodePointSet::intersection(const CodePointSet& other) const {
  CodePointSet outside = complement();
  outside.add(other.complement());
  return outside.complement();
}

bool CodePointSet::contains(char32_t c) const {
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), c,
                                      [](char32_t x, const Range& r) { return x < r.first; });
  return after != ranges_.begin() && std::prev(after)->last >= c;
}

}  // namespace troupe
