#include "actors/router/stop_matcher.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace troupe {

StopStrings::StopStrings(std::vector<std::string> strings, bool shown) : shown_(shown) {
  for (std::string& text : strings) {
    assert(!text.empty());
    Pattern pattern{std::move(text), {}};
    // border[i]: length of the longest proper prefix of the pattern that text[0..i] ends with.
    pattern.border.resize(pattern.text.size(), 0);
    for (std::size_t i = 1, length = 0; i < pattern.text.size(); ++i) {
      while (length > 0 && pattern.text[i] != pattern.text[length])
        length = pattern.border[length - 1];
      if (pattern.text[i] == pattern.text[length]) ++length;
      pattern.border[i] = length;
    }
    patterns_.push_back(std::move(pattern));
  }
}

StopMatcher::StopMatcher(std::shared_ptr<const StopStrings> strings)
    : strings_(std::move(strings)), state_(strings_->patterns_.size(), 0) {}

std::string StopMatcher::feed(std::string_view text) {
  if (matched()) return {};
  for (const char c : text) {
    held_.push_back(c);
    for (std::size_t i = 0; i < state_.size(); ++i) {
      const StopStrings::Pattern& pattern = strings_->patterns_[i];
      std::size_t& length = state_[i];
      while (length > 0 && c != pattern.text[length]) length = pattern.border[length - 1];
      if (c == pattern.text[length]) ++length;
      const bool longer = found_ == nullptr || found_->size() < length;
      if (length == pattern.text.size() && longer) found_ = &pattern.text;
    }
    if (matched()) {
      if (!strings_->shown_) held_.resize(held_.size() - found_->size());
      return std::exchange(held_, {});
    }
  }
  const bool decided = state_.empty() || strings_->shown_;
  const std::size_t undecided = decided ? 0 : *std::max_element(state_.begin(), state_.end());
  std::string safe = held_.substr(0, held_.size() - undecided);
  held_.erase(0, safe.size());
  return safe;
}

std::string StopMatcher::finish() { return std::exchange(held_, {}); }

}  // namespace troupe
