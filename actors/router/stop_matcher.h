#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// A request's stop strings, prepared for matching once and shared by its choices.
class StopStrings {
 public:
  /// None may be empty. `shown`: the one that is found is let through as well.
  explicit StopStrings(std::vector<std::string> strings, bool shown = false);

 private:
  friend class StopMatcher;
  struct Pattern {
    std::string text;
    std::vector<std::size_t> border;  ///< of each prefix (Knuth, Morris, Pratt)
  };
  std::vector<Pattern> patterns_;
  const bool shown_;
};

/// Lets text through up to the first stop string. Text that may still become one is held back, so
/// that no part of a stop string is ever given out, unless it is to be shown; where the text is cut
/// into pieces changes nothing.
class StopMatcher {
 public:
  explicit StopMatcher(std::shared_ptr<const StopStrings> strings);

  /// The text that is safe to give out now. After a match the rest is dropped.
  std::string feed(std::string_view text);
  /// The end of the text: what was held back, as it is no stop string.
  std::string finish();
  bool matched() const { return found_ != nullptr; }
  /// The stop string that matched; empty: none. Valid as long as the strings.
  std::string_view found() const { return matched() ? *found_ : std::string_view(); }

 private:
  std::shared_ptr<const StopStrings> strings_;
  std::vector<std::size_t> state_;  // Of each pattern: how much of it the text ends with.
  std::string held_;
  const std::string* found_ = nullptr;  // In strings_.
};

}  // namespace troupe
