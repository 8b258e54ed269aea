#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace troupe {

/// How far a text that only grows has been looked through for one thing, so that what a model
/// repeats without end is looked at once. Another text, or another thing: another one of these.
class LookedThrough {
 public:
  /// How many of these characters the text begins with.
  std::size_t leading(std::string_view text, std::string_view blanks) {
    return size_ = std::min(text.find_first_not_of(blanks, size_), text.size());
  }
  /// Where the tag stands; npos: nowhere yet.
  std::size_t find(std::string_view text, std::string_view tag) {
    const std::size_t at = text.find(tag, size_);
    if (at == std::string_view::npos) size_ = text.size() - std::min(text.size(), tag.size() - 1);
    return at;
  }

 private:
  std::size_t size_ = 0;
};

}  // namespace troupe
