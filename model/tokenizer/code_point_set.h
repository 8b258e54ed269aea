#pragma once

#include <vector>

namespace troupe {

/// A set of Unicode code points.
class CodePointSet {
 public:
  struct Range {
    char32_t first = 0;
    char32_t last = 0;
    bool operator==(const Range&) const = default;
  };
  static constexpr char32_t kLast = 0x10FFFF;

  void add(char32_t first, char32_t last);
  void add(const CodePointSet& other);
  CodePointSet complement() const;
  CodePointSet intersection(const CodePointSet& other) const;

  bool empty() const { return ranges_.empty(); }
  bool contains(char32_t c) const;
  /// Sorted; between two of them is a gap.
  const std::vector<Range>& ranges() const { return ranges_; }
  bool operator==(const CodePointSet&) const = default;

 private:
  void join();

  std::vector<Range> ranges_;
};

}  // namespace troupe
