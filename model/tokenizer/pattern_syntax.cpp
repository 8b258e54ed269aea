#include "model/tokenizer/pattern_syntax.h"

#include <array>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <vector>

#include "model/tokenizer/unicode_since_14.h"
#include "model/tokenizer/utf8.h"

namespace troupe {
namespace {

/// White_Space of Unicode, Oniguruma's \s. PCRE2's own \s has U+180E besides.
constexpr std::string_view kSpace = "\\x{9}-\\x{d}\\x{85}\\p{Z}";
/// Symbols that are Other_Alphabetic: circled letters.
constexpr std::string_view kAlphabeticSymbols =
    "\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}";
/// Oniguruma counts these Latin-1 numbers as word characters.
constexpr std::string_view kOnigurumaWordExtras = "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";

constexpr std::array<std::string_view, 37> kCategories = {
    "L",  "M",  "N",  "P",  "S",  "Z",  "C",  "Lu", "Ll", "Lt", "Lm", "Lo", "Mn",
    "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
    "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"};

std::string hex(char32_t c) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "\\x{%x}", static_cast<unsigned>(c));
  return text.data();
}

/// The younger code points of a category ("Lu") or of a group of them ("L"), as class content.
std::string since_14(std::string_view category) {
  std::string out;
  for (const unicode::CategoryRange& range : unicode::kSinceUnicode14) {
    if (!std::string_view(range.category).starts_with(category)) continue;
    out += hex(range.first) + "-" + hex(range.last);
  }
  return out;
}

std::string all_since_14_but_format() {
  std::string out;
  for (const unicode::CategoryRange& range : unicode::kSinceUnicode14) {
    if (std::string_view(range.category) != "Cf") out += hex(range.first) + "-" + hex(range.last);
  }
  return out;
}

std::string property(std::string_view category) {
  return "\\p{" + std::string(category) + "}" + since_14(category);
}

std::string word() {
  return property("L") + property("M") + property("Nd") + property("Nl") + property("Pc") +
         std::string(kAlphabeticSymbols);
}

/// A set of characters: the union of a PCRE2 class content and of complements of such contents.
struct CharSet {
  std::string positive;
  std::vector<std::string> complements;

  void add(std::string content, bool negated) {
    if (negated) {
      complements.push_back(std::move(content));
    } else {
      positive += content;
    }
  }

  /// The set, or all characters outside of it, as one PCRE2 atom.
  std::string atom(bool negated) const {
    if (complements.empty()) return (negated ? "[^" : "[") + positive + "]";
    if (positive.empty() && complements.size() == 1) {
      return (negated ? "[" : "[^") + complements[0] + "]";
    }
    std::string any = positive.empty() ? "" : "[" + positive + "]|";
    for (const std::string& content : complements) any += "[^" + content + "]|";
    any.pop_back();
    return negated ? "(?:(?!" + any + ")(?s:.))" : "(?:" + any + ")";
  }
};

class Rewriter {
 public:
  explicit Rewriter(std::string_view pattern) : in_(pattern) {}

  Result<std::string> run() {
    if (in_.starts_with("(?i)")) {  // Elsewhere it ends at another place in Ruby than in Perl.
      out_ += "(?i)";
      pos_ = 4;
    }
    while (pos_ < in_.size()) {
      const Status status = piece();
      if (!status) return status.error();
    }
    return std::move(out_);
  }

 private:
  bool at_end() const { return pos_ >= in_.size(); }
  bool next_is(std::string_view text) const { return in_.substr(pos_).starts_with(text); }

  Error unsupported(std::string what) const {
    return invalid_argument("the pattern uses " + what + " at byte " + std::to_string(pos_) +
                            ", which Troupe does not support");
  }

  Status piece() {
    switch (in_[pos_]) {
      case '\\':
        return escape_outside();
      case '[':
        return char_class();
      case '(':
        return group();
      case '{':
        return braces();
      case '.':
        ++pos_;
        out_ += "[^\\x{a}]";
        return {};
      case '^':
        ++pos_;
        out_ += "(?m:^)";
        return {};
      case '$':
        ++pos_;
        out_ += "(?m:$)";
        return {};
      case '*':
      case '+':
      case '?':
      case '|':
      case ')':
        out_ += in_[pos_++];
        return {};
      default:
        out_ += hex(utf8::decode(in_, pos_));
        return {};
    }
  }

  Status group() {
    for (std::string_view opening : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"}) {
      if (!next_is(opening)) continue;
      out_ += opening;
      pos_ += opening.size();
      return {};
    }
    if (next_is("(?")) return unsupported("'" + std::string(in_.substr(pos_, 4)) + "'");
    out_ += "(?:";  // Captures are of no use without back-references.
    ++pos_;
    return {};
  }

  std::optional<unsigned> number() {
    if (at_end() || in_[pos_] < '0' || in_[pos_] > '9') return std::nullopt;
    unsigned value = 0;
    for (; !at_end() && in_[pos_] >= '0' && in_[pos_] <= '9'; ++pos_) {
      value = std::min(value * 10 + static_cast<unsigned>(in_[pos_] - '0'), 100000u);
    }
    return value;
  }

  Status braces() {
    const std::size_t start = pos_++;
    const std::optional<unsigned> low = number();
    const bool comma = !at_end() && in_[pos_] == ',';
    if (comma) ++pos_;
    const std::optional<unsigned> high = comma ? number() : std::nullopt;
    if (at_end() || in_[pos_] != '}' || (!low && !high)) {  // no quantifier, so plain text
      pos_ = start + 1;
      out_ += "\\{";
      return {};
    }
    ++pos_;
    if (!at_end() && in_[pos_] == '+') return unsupported("'+' after '}'");
    if (!at_end() && in_[pos_] == '?' && !comma) return unsupported("'?' after '{n}'");
    out_ += "{" + std::to_string(low.value_or(0));
    if (comma) out_ += "," + (high ? std::to_string(*high) : std::string());
    out_ += "}";
    return {};
  }

  Status escape_outside() {
    CharSet set;
    const std::string_view word_boundary = in_.substr(pos_, 2);
    if (word_boundary == "\\b" || word_boundary == "\\B") {
      pos_ += 2;
      const std::string w = "[" + word() + std::string(kOnigurumaWordExtras) + "]";
      const bool inside = word_boundary == "\\B";
      out_ += "(?:(?<=" + w + ")(?" + (inside ? "=" : "!") + w + ")|(?<!" + w + ")(?" +
              (inside ? "!" : "=") + w + "))";
      return {};
    }
    if (word_boundary == "\\A" || word_boundary == "\\z") {
      pos_ += 2;
      out_ += word_boundary;
      return {};
    }
    Result<std::optional<char32_t>> c = escape(set);
    if (!c) return c.error();
    out_ += *c ? hex(**c) : set.atom(false);
    return {};
  }

  /// Reads an escape: a character is returned, a set is added to `set`.
  Result<std::optional<char32_t>> escape(CharSet& set) {
    if (pos_ + 1 >= in_.size()) return unsupported("'\\' at its end");
    const char c = in_[pos_ + 1];
    switch (c) {
      case 's':
      case 'S':
        set.add(std::string(kSpace), c == 'S');
        break;
      case 'd':
      case 'D':
        set.add(property("Nd"), c == 'D');
        break;
      case 'w':
      case 'W':
        set.add(word() + std::string(kOnigurumaWordExtras), c == 'W');
        break;
      case 'p':
      case 'P': {
        const Status status = property_escape(set);
        if (!status) return status.error();
        return std::optional<char32_t>();
      }
      case 'x':
      case 'u':
        return hex_escape(c);
      default:
        return simple_escape(c);
    }
    pos_ += 2;
    return std::optional<char32_t>();
  }

  Result<std::optional<char32_t>> simple_escape(char c) {
    constexpr std::string_view kNames = "tnrfvae";
    constexpr std::string_view kValues = "\t\n\r\f\v\a\x1b";
    const std::size_t named = kNames.find(c);
    const bool alphanumeric =
        (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (named == std::string_view::npos && alphanumeric) {
      return unsupported(std::string("'\\") + c + "'");
    }
    ++pos_;
    const char32_t literal = utf8::decode(in_, pos_);
    if (named == std::string_view::npos) return std::optional<char32_t>(literal);
    return std::optional<char32_t>(static_cast<unsigned char>(kValues[named]));
  }

  /// \xHH of ASCII, \x{H...} and \uHHHH.
  Result<std::optional<char32_t>> hex_escape(char kind) {
    std::size_t p = pos_ + 2;
    const bool braced = kind == 'x' && p < in_.size() && in_[p] == '{';
    if (braced) ++p;
    const std::size_t digits_max = braced ? 8 : (kind == 'x' ? 2 : 4);
    char32_t value = 0;
    std::size_t digits = 0;
    for (; p < in_.size() && digits < digits_max; ++p, ++digits) {
      const char d = in_[p];
      const int v = d >= '0' && d <= '9'   ? d - '0'
                    : d >= 'a' && d <= 'f' ? d - 'a' + 10
                    : d >= 'A' && d <= 'F' ? d - 'A' + 10
                                           : -1;
      if (v < 0) break;
      value = value * 16 + static_cast<char32_t>(v);
    }
    const bool closed = !braced || (p < in_.size() && in_[p] == '}');
    const bool complete = braced ? digits > 0 : digits == digits_max;
    const bool byte = kind == 'x' && !braced && value > 0x7F;  // A raw byte in Oniguruma.
    if (!closed || !complete || byte || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
      return unsupported(std::string("a malformed '\\") + kind + "'");
    }
    pos_ = p + (braced ? 1 : 0);
    return std::optional<char32_t>(value);
  }

  Status property_escape(CharSet& set) {
    const std::size_t close = in_.find('}', pos_);
    if (!in_.substr(pos_ + 2).starts_with('{') || close == std::string_view::npos) {
      return unsupported("'\\p' without braces");
    }
    std::string_view name = in_.substr(pos_ + 3, close - pos_ - 3);
    bool negated = in_[pos_ + 1] == 'P';
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    bool known = false;
    for (std::string_view category : kCategories) known = known || category == name;
    if (!known || (name == "Mn" && negated)) {
      return unsupported("the property '" + std::string(in_.substr(pos_, close + 1 - pos_)) + "'");
    }
    pos_ = close + 1;
    if (name == "C" || name == "Cn") {  // These shrink as Unicode grows.
      std::string rest = "\\P{" + std::string(name) + "}" + all_since_14_but_format();
      if (name == "Cn") rest += since_14("Cf");
      set.add(std::move(rest), !negated);
    } else if (name == "Mn") {
      set.add("\\P{Mn}\\x{1171e}", true);  // U+1171E became Mc.
      set.add(since_14("Mn"), false);
    } else {
      set.add(property(name), negated);
    }
    return {};
  }

  Status char_class() {
    const std::size_t start = pos_++;
    const bool negated = next_is("^");
    if (negated) ++pos_;
    CharSet set;
    bool empty = true;
    while (!next_is("]")) {
      if (at_end()) {
        pos_ = start;
        return unsupported("'[' without ']'");
      }
      if (in_[pos_] == '[' || next_is("&&")) return unsupported("a class within a class");
      const Status status = class_item(set);
      if (!status) return status;
      empty = false;
    }
    if (empty) return unsupported("an empty class");
    ++pos_;
    out_ += set.atom(negated);
    return {};
  }

  /// A character, a range or a set.
  Status class_item(CharSet& set) {
    Result<std::optional<char32_t>> first = class_char(set);
    if (!first) return first.error();
    if (!*first) return {};
    std::string content = hex(**first);
    if (next_is("-") && !next_is("-]")) {
      ++pos_;
      if (at_end() || in_[pos_] == '[') return unsupported("a range without an end");
      CharSet no_set;
      Result<std::optional<char32_t>> last = class_char(no_set);
      if (!last) return last.error();
      if (!*last || **last < **first) return unsupported("a range that is empty or ends in a set");
      content += "-" + hex(**last);
    }
    set.positive += content;
    return {};
  }

  Result<std::optional<char32_t>> class_char(CharSet& set) {
    if (in_[pos_] == '\\') return escape(set);
    return std::optional<char32_t>(utf8::decode(in_, pos_));
  }

  std::string_view in_;
  std::size_t pos_ = 0;
  std::string out_;
};

}  // namespace

Result<std::string> to_pcre2_syntax(std::string_view pattern) { return Rewriter(pattern).run(); }

std::string rust_word_class() { return word() + "\\x{200c}\\x{200d}"; }

}  // namespace troupe
