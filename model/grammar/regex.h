#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/grammar/code_set.h"
#include "runtime/result.h"

namespace troupe {

// Regular expressions as Python, ECMAScript and Rust have them in common: characters, . \d \w \s
// \D \W \S, \t \n \r \f \v \0 \xHH \uHHHH \u{H...}, classes with ranges and negation, groups
// (numbered ones and (?:) (?<name>) (?P<name>) alike, for nothing refers to them), |, and the
// repetitions ? * + {m} {m,} {m,n}, lazy ones too (laziness changes what a group holds, not what
// matches); \p{..} with a general category; (?i) first and (?i:...); look-ahead first, behind `^`.
// Refused by name, with the place: other look-around, back-references, \b \B, other properties,
// possessive repetitions, atomic groups, other flags.
//
// The three dialects differ in characters beyond ASCII (\d, \w, \s), in `.` and in `$`. A
// character is in `surely` if all of them take it, in `maybe` if one of them does: an answer is
// made of the first, what an answer must not match is read by the second.

/// A parsed expression. Depth is bounded by the parser.
struct Regex {
  enum class Kind : unsigned char { kEmpty, kSet, kConcat, kAlternate, kRepeat, kStart, kEnd };

  static constexpr std::size_t kBytesMax = 64u << 10;  ///< of an expression's text
  static constexpr int kDepthMax = 100;                ///< groups in groups
  static constexpr std::size_t kCountMax = 10'000;     ///< in {m,n}, and of what they multiply to
  static constexpr std::size_t kUnbounded = static_cast<std::size_t>(-1);

  Kind kind = Kind::kEmpty;
  CodeSet surely, maybe;         ///< kSet
  std::vector<Regex> parts;      ///< kConcat, kAlternate, and the one of kRepeat
  std::size_t min = 0, max = 0;  ///< kRepeat
  /// Of a whole expression: what a text must begin with, too, and what it must not.
  std::vector<Regex> ahead, not_ahead;
  bool looks() const { return !ahead.empty() || !not_ahead.empty(); }

  static Result<Regex> parse(std::string_view pattern);
  static Regex set(CodeSet surely, CodeSet maybe);
  static Regex set(const CodeSet& exact) { return set(exact, exact); }
  static Regex repeat(Regex part, std::size_t min, std::size_t max);
  static Regex concat(std::vector<Regex> parts);
  static Regex text(std::string_view text);

  /// Without `^` at its beginning and `$` at its end; `start` and `end` say which were there.
  struct Trimmed;
  Trimmed trimmed() const;
  /// Or look-ahead: it takes states to be written.
  bool has_anchors() const;
  /// How many characters it takes at least and at most (or kUnbounded). Anchors take none.
  struct Lengths {
    std::size_t min, max;
  };
  Lengths lengths() const;
  /// Parts in parts.
  int depth() const;
  /// A repetition's sign in the grammar's notation: "" for once.
  std::string counts() const;
  /// As an expression of the grammar's notation. Must have no anchors.
  std::string expression(Spelling spelling) const;
};

struct Regex::Trimmed {
  Regex regex;
  bool start = false, end = false;
};

}  // namespace troupe
