#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/scanner.h"
#include "runtime/result.h"

namespace troupe {

/// Half-open byte range.
struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// A compiled pattern of tokenizer.json: a Scanner where the pattern is simple enough, as all
/// published ones are, PCRE2 for any other. Immutable; matching state lives in a Matcher.
class Pattern {
 public:
  /// `onig_syntax` as in tokenizer.json; see pattern_syntax.h.
  static Result<Pattern> compile(std::string_view onig_syntax);
  /// The same for PCRE2's own syntax.
  static Result<Pattern> compile_pcre2(const std::string& pattern);

 private:
  friend class Matcher;
  struct Code;
  std::shared_ptr<const Code> code_;  // of PCRE2; null if there is a scanner
  std::shared_ptr<const Scanner> scanner_;
};

/// Runs patterns for one thread: holds PCRE2's scratch memory, which grows on demand and is
/// bounded.
class Matcher {
 public:
  Matcher();
  ~Matcher();
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;

  /// Appends all matches in `text` (valid UTF-8), left to right and without overlap. An empty match
  /// that touches the one before it does not count, as in Oniguruma's iterator.
  Status find_all(const Pattern& pattern, std::string_view text, std::vector<TextRange>& matches);

 private:
  struct State;
  Status find_all_by_scanner(const Scanner& scanner, std::string_view text,
                             std::vector<TextRange>& matches) const;
  Result<std::optional<TextRange>> find(const Pattern& pattern, std::string_view text,
                                        std::size_t start);
  std::unique_ptr<State> state_;
};

}  // namespace troupe
