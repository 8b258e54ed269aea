#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// A set of Unicode characters: sorted ranges that neither touch nor overlap. Never has surrogates.
class CodeSet {
 public:
  using Range = std::pair<std::uint32_t, std::uint32_t>;  ///< first and last, both in it

  static constexpr std::uint32_t kMax = 0x10FFFF;

  CodeSet() = default;
  explicit CodeSet(std::vector<Range> ranges);
  static CodeSet all() { return CodeSet({{0, kMax}}); }
  static CodeSet one(std::uint32_t code) { return CodeSet({{code, code}}); }

  bool empty() const { return ranges_.empty(); }
  bool has(std::uint32_t code) const;
  const std::vector<Range>& ranges() const { return ranges_; }

  CodeSet complement() const;
  friend CodeSet operator|(const CodeSet& a, const CodeSet& b);
  friend CodeSet operator&(const CodeSet& a, const CodeSet& b);
  friend bool operator==(const CodeSet& a, const CodeSet& b) = default;

  /// As a class of the grammar's notation. Not for the empty set.
  std::string text() const;

 private:
  std::vector<Range> ranges_;
};

/// How a character of a text stands in an answer.
enum class Spelling : unsigned char {
  kPlain,  ///< as it is
  kJson,   ///< inside a JSON string: raw where it may be, by one short escape where it must not
  kName,   ///< so, but without escapes wherever there is another character
};

/// An expression for one character of the set. Not for the empty set.
std::string spelled(const CodeSet& set, Spelling spelling);

/// A text as a JSON string has it between its quotes: raw, but for what must be escaped.
std::string json_escaped(std::string_view text);

/// A text's characters; bytes that are no UTF-8 are left out.
std::vector<std::uint32_t> code_points(std::string_view text);
/// Appends one character as UTF-8.
void append_utf8(std::string& out, std::uint32_t code);

}  // namespace troupe
