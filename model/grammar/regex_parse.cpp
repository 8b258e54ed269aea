#include <algorithm>
#include <charconv>
#include <optional>

#include "model/grammar/regex.h"
#include "model/grammar/regex_classes.h"

namespace troupe {
namespace {

/// Recursive descent over the pattern's characters. Keeps the first error; what is returned after
/// one is harmless.
class Parser {
 public:
  explicit Parser(std::string_view pattern) : codes_(code_points(pattern)) {}

  Result<Regex> parse() {
    ignore_case_ = take_flag();
    Regex all = alternation(0);
    if (at_ < codes_.size()) fail("')' without '('");
    all.ahead = std::move(ahead_);
    all.not_ahead = std::move(not_ahead_);
    if (error_.empty() && expanded(all) > Regex::kCountMax + codes_.size()) {
      at_ = 0;
      fail("its repetitions multiply to more than " + std::to_string(Regex::kCountMax) +
           " characters");
    }
    if (!error_.empty()) return invalid_argument(error_);
    return all;
  }

 private:
  bool more() const { return error_.empty() && at_ < codes_.size(); }
  bool next_is(char c, std::size_t ahead = 0) const {
    return at_ + ahead < codes_.size() && codes_[at_ + ahead] == static_cast<unsigned char>(c);
  }
  bool take(char c) {
    if (!next_is(c)) return false;
    ++at_;
    return true;
  }
  void fail(const std::string& what) {
    if (error_.empty())
      error_ = "regular expression, character " + std::to_string(at_ + 1) + ": " + what + ".";
  }
  Regex refuse(const std::string& what) {
    fail(what + " not supported");
    return {};
  }

  /// How many characters the expression is when {m,n} is written out.
  static std::size_t expanded(const Regex& regex) {
    std::size_t sum = regex.kind == Regex::Kind::kSet ? 1 : 0;
    for (const Regex& part : regex.parts) sum += expanded(part);
    if (regex.kind == Regex::Kind::kRepeat) {
      const std::size_t count = regex.max == Regex::kUnbounded ? regex.min : regex.max;
      if (count > 1) sum *= count;
    }
    return std::min(sum, std::size_t{1} << 32);
  }

  Regex alternation(int depth);
  Regex sequence(int depth);
  Regex atom(int depth);
  Regex group(int depth);
  bool look_ahead(const std::vector<Regex>& before, int depth);
  bool take_flag();
  Regex one_of(RegexClass set);
  Regex counted(RegexClass set);
  Regex quantified(Regex part);
  bool count(std::size_t& min, std::size_t& max);
  std::optional<std::size_t> number();
  Regex escape();
  RegexClass property();
  std::optional<RegexClass> class_escape(std::uint32_t letter);
  std::uint32_t character_escape(std::uint32_t letter, bool in_class);
  std::uint32_t hex(std::size_t digits);
  std::uint32_t unicode_escape();
  Regex bracket();
  RegexClass bracket_item(std::optional<std::uint32_t>& code);

  std::vector<std::uint32_t> codes_;
  std::size_t at_ = 0;
  std::string error_;
  std::size_t ranges_ = 0;  // Of all classes so far.
  bool ignore_case_ = false;
  std::vector<Regex> ahead_, not_ahead_;
};

/// (?i) at the beginning.
bool Parser::take_flag() {
  const bool there = next_is('(') && next_is('?', 1) && next_is('i', 2) && next_is(')', 3);
  if (there) at_ += 4;
  return there;
}

Regex Parser::one_of(RegexClass set) { return counted(ignore_case_ ? set.any_case() : set); }

/// Each \pL has over a thousand ranges.
Regex Parser::counted(RegexClass set) {
  constexpr std::size_t kRangesMax = 500'000;
  ranges_ += set.surely.ranges().size() + set.maybe.ranges().size();
  if (ranges_ > kRangesMax) return refuse("so many classes of characters are");
  return Regex::set(std::move(set.surely), std::move(set.maybe));
}

/// Look-ahead where a text begins is what it must be besides.
bool Parser::look_ahead(const std::vector<Regex>& before, int depth) {
  const bool there = next_is('(') && next_is('?', 1) && (next_is('=', 2) || next_is('!', 2));
  if (!there || depth > 0 || before.empty()) return false;
  const bool first = std::all_of(before.begin(), before.end(),
                                 [](const Regex& r) { return r.kind == Regex::Kind::kStart; });
  if (!first) return false;
  const bool negative = next_is('!', 2);
  at_ += 3;
  Regex inside = alternation(depth + 1);
  if (error_.empty() && !take(')')) fail("a group does not end");
  (negative ? not_ahead_ : ahead_).push_back(Regex::concat({before.front(), std::move(inside)}));
  return true;
}

Regex Parser::alternation(int depth) {
  if (depth > Regex::kDepthMax) return refuse("so many groups in groups are");
  std::vector<Regex> branches;
  do branches.push_back(sequence(depth));
  while (more() && take('|'));
  if (branches.size() == 1) return std::move(branches.front());
  if (depth == 0 && !(ahead_.empty() && not_ahead_.empty()))
    return refuse("look-ahead in one of several alternatives is");
  Regex out;
  out.kind = Regex::Kind::kAlternate;
  out.parts = std::move(branches);
  return out;
}

Regex Parser::sequence(int depth) {
  std::vector<Regex> parts;
  while (more() && !next_is('|') && !next_is(')'))
    if (!look_ahead(parts, depth)) parts.push_back(quantified(atom(depth)));
  return Regex::concat(std::move(parts));
}

Regex Parser::atom(int depth) {
  const std::uint32_t code = codes_[at_];
  Regex anchor;
  switch (code) {
    case '(':
      return group(depth);
    case '[':
      return bracket();
    case '\\':
      return escape();
    case '.':
      ++at_;
      return counted(RegexClass::dot());
    case '^':
      ++at_;
      anchor.kind = Regex::Kind::kStart;
      return anchor;
    case '$':
      ++at_;
      anchor.kind = Regex::Kind::kEnd;
      return anchor;
    case '*':
    case '+':
    case '?':
      fail("there is nothing to repeat");
      return {};
    default:
      ++at_;
      return one_of({CodeSet::one(code), CodeSet::one(code)});
  }
}

Regex Parser::group(int depth) {
  ++at_;
  const bool ignored_case = ignore_case_;
  if (take('?')) {
    if (next_is('=') || next_is('!'))
      return refuse("look-ahead other than behind '^' at the beginning is");
    if (next_is('<') && (next_is('=', 1) || next_is('!', 1))) return refuse("look-behind is");
    if (next_is('>')) return refuse("an atomic group is");
    if (next_is('P') && next_is('=', 1)) return refuse("a back-reference is");
    const bool named = take('P') || next_is('<');
    if (next_is('i') && next_is(':', 1)) {
      at_ += 2;
      ignore_case_ = true;
    } else if (named) {
      if (!take('<')) return refuse("this kind of group is");
      while (more() && !next_is('>')) ++at_;
      if (!take('>')) fail("the group's name does not end");
    } else if (!take(':')) {
      return refuse("inline flags and comments are");
    }
  }
  Regex inside = alternation(depth + 1);
  if (error_.empty() && !take(')')) fail("a group does not end");
  ignore_case_ = ignored_case;
  return inside;
}

Regex Parser::quantified(Regex part) {
  for (int times = 0; more(); ++times) {
    std::size_t min = 0;
    std::size_t max = Regex::kUnbounded;
    if (take('*'))
      min = 0;
    else if (take('+'))
      min = 1;
    else if (take('?'))
      max = 1;
    else if (!next_is('{') || !count(min, max))
      break;
    if (times > 0) return refuse("a repetition of a repetition without a group is");
    if (part.kind == Regex::Kind::kStart || part.kind == Regex::Kind::kEnd)
      return refuse("a repeated anchor is");
    if (next_is('+')) return refuse("a possessive repetition is");
    (void)take('?');  // Lazy: the same texts.
    part = Regex::repeat(std::move(part), min, max);
  }
  return part;
}

/// {m}, {m,}, {,n} or {m,n}; anything else in braces is text.
bool Parser::count(std::size_t& min, std::size_t& max) {
  const std::size_t begin = at_++;
  const auto low = number();
  const bool comma = take(',');
  const auto high = comma ? number() : low;
  if (!low && high && next_is('}')) fail("{,n} means different things: write {0,n}");
  if (!low || !take('}')) {
    at_ = begin;
    return false;
  }
  min = *low;
  max = high.value_or(Regex::kUnbounded);
  if (min > Regex::kCountMax || (high && max > Regex::kCountMax))
    fail("a repetition of more than " + std::to_string(Regex::kCountMax) + " is not supported");
  else if (min > max)
    fail("the repetition's bounds are the wrong way round");
  return true;
}

std::optional<std::size_t> Parser::number() {
  std::optional<std::size_t> out;
  while (at_ < codes_.size() && codes_[at_] >= '0' && codes_[at_] <= '9')
    out = std::min(out.value_or(0) * 10 + (codes_[at_++] - '0'), Regex::kCountMax + 1);
  return out;
}

Regex Parser::escape() {
  ++at_;
  if (!more()) {
    fail("'\\' at the end");
    return {};
  }
  const std::uint32_t letter = codes_[at_];
  if (const auto found = class_escape(letter)) {
    ++at_;
    return counted(*found);
  }
  if (letter == 'p' || letter == 'P') {
    const RegexClass found = property();
    return one_of(found);
  }
  Regex anchor;
  switch (letter) {
    case 'A':
      ++at_;
      anchor.kind = Regex::Kind::kStart;
      return anchor;
    case 'z':
    case 'Z':
      ++at_;
      anchor.kind = Regex::Kind::kEnd;
      return anchor;
    case 'b':
    case 'B':
      return refuse("a word boundary is");
    case 'k':
      return refuse("a back-reference is");
    default:
      break;
  }
  const CodeSet one = CodeSet::one(character_escape(letter, false));
  return one_of({one, one});
}

/// \p{Lu}, \pL and, of all other characters, \P{Lu}; `at_` is on the p.
RegexClass Parser::property() {
  const bool negated = codes_[at_] == 'P';
  const std::size_t begin = at_++;
  std::string name;
  const bool braces = take('{');
  while (more() && !next_is('}') && (braces || name.empty())) append_utf8(name, codes_[at_++]);
  const auto found = RegexClass::category(name);
  if (!found || (braces && !take('}'))) {
    at_ = begin;
    fail("only general categories such as \\p{L} and \\p{Nd} are supported");
    return {};
  }
  return negated ? found->negated() : *found;
}

std::optional<RegexClass> Parser::class_escape(std::uint32_t letter) {
  switch (letter) {
    case 'd':
      return RegexClass::digit();
    case 'D':
      return RegexClass::digit().negated();
    case 'w':
      return RegexClass::word();
    case 'W':
      return RegexClass::word().negated();
    case 's':
      return RegexClass::space();
    case 'S':
      return RegexClass::space().negated();
    default:
      return std::nullopt;
  }
}

/// The character that an escape stands for; `at_` is on its letter.
std::uint32_t Parser::character_escape(std::uint32_t letter, bool in_class) {
  ++at_;
  switch (letter) {
    case 't':
      return '\t';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    case 'x':
      return hex(2);
    case 'u':
      return unicode_escape();
    case '0':
      if (at_ < codes_.size() && codes_[at_] >= '0' && codes_[at_] <= '9') break;
      return 0;
    case 'b':
      if (in_class) return '\b';
      break;
    default:
      break;
  }
  if (letter >= '0' && letter <= '9') {
    fail("a back-reference or octal escape is not supported");
  } else if (letter < 0x80 && ((letter | 0x20) >= 'a' && (letter | 0x20) <= 'z')) {
    fail(std::string("the escape \\") + static_cast<char>(letter) + " is not supported");
  }
  return letter;
}

std::uint32_t Parser::hex(std::size_t digits) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < digits; ++i) {
    const std::uint32_t code = at_ < codes_.size() ? codes_[at_] : 0;
    const std::uint32_t low = code | 0x20;
    if (code >= '0' && code <= '9')
      value = value * 16 + (code - '0');
    else if (low >= 'a' && low <= 'f' && code < 0x80)
      value = value * 16 + (low - 'a' + 10);
    else
      fail("hexadecimal digits are missing");
    ++at_;
  }
  return value;
}

std::uint32_t Parser::unicode_escape() {
  std::uint32_t code = 0;
  if (take('{')) {
    std::size_t digits = 0;
    while (at_ + digits < codes_.size() && codes_[at_ + digits] != '}' && digits < 7) ++digits;
    code = digits >= 1 && digits <= 6 ? hex(digits) : CodeSet::kMax + 1;
    if (!take('}')) fail("'}' is missing");
  } else {
    code = hex(4);
    const bool high = code >= 0xD800 && code <= 0xDBFF;
    if (high && next_is('\\') && next_is('u', 1)) {
      at_ += 2;
      const std::uint32_t low = hex(4);
      if (low >= 0xDC00 && low <= 0xDFFF) code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
  }
  if (code > CodeSet::kMax || (code >= 0xD800 && code <= 0xDFFF)) fail("this is no character");
  return code;
}

Regex Parser::bracket() {
  ++at_;
  const bool negated = take('^');
  // "[]a]" is a class of two to Python, an empty one to ECMAScript.
  if (next_is(']')) return refuse("']' first in a class is");
  std::vector<CodeSet::Range> surely, maybe;
  while (more() && !next_is(']')) {
    if (next_is('[') && next_is(':', 1)) return refuse("a named class such as [:alpha:] is");
    std::optional<std::uint32_t> first;
    RegexClass item = bracket_item(first);
    if (first && next_is('-') && at_ + 1 < codes_.size() && !next_is(']', 1)) {
      const std::size_t dash = at_++;
      std::optional<std::uint32_t> last;
      (void)bracket_item(last);
      if (!last)
        at_ = dash;  // A class ends no range: the dash is itself.
      else if (*last < *first)
        fail("the range's ends are the wrong way round");
      else
        item.surely = item.maybe = CodeSet({{*first, *last}});
    }
    surely.insert(surely.end(), item.surely.ranges().begin(), item.surely.ranges().end());
    maybe.insert(maybe.end(), item.maybe.ranges().begin(), item.maybe.ranges().end());
    (void)counted(std::move(item));
  }
  if (error_.empty() && !take(']')) fail("a class does not end");
  RegexClass out{CodeSet(std::move(surely)), CodeSet(std::move(maybe))};
  if (ignore_case_) out = out.any_case();
  if (negated) out = out.negated();
  return counted(std::move(out));
}

/// One item of a class; `code` is set if it is a single character.
RegexClass Parser::bracket_item(std::optional<std::uint32_t>& code) {
  if (take('\\')) {
    if (!more()) {
      fail("'\\' at the end");
      return {};
    }
    if (auto found = class_escape(codes_[at_])) {
      ++at_;
      return *std::move(found);
    }
    if (codes_[at_] == 'p' || codes_[at_] == 'P') return property();
    code = character_escape(codes_[at_], true);
  } else {
    code = codes_[at_++];
  }
  return {CodeSet::one(*code), CodeSet::one(*code)};
}

}  // namespace

Result<Regex> Regex::parse(std::string_view pattern) {
  if (pattern.size() > kBytesMax)
    return invalid_argument("a regular expression of more than " + std::to_string(kBytesMax) +
                            " bytes is not supported.");
  return Parser(pattern).parse();
}

}  // namespace troupe
