#include "model/tokenizer/scan_syntax.h"

#include <algorithm>
#include <string>

#include "model/tokenizer/unicode_properties.h"
#include "model/tokenizer/utf8.h"

namespace troupe {
namespace {

constexpr int kClassDepthMax = 8;

bool is_ascii_letter(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// The characters that are `c` without regard to case, for ASCII.
CodePointSet without_case(char32_t c) {
  CodePointSet set;
  set.add(c, c);
  if (!is_ascii_letter(c)) return set;
  set.add(c ^ 0x20, c ^ 0x20);
  if ((c | 0x20) == 's') set.add(0x17F, 0x17F);    // long s
  if ((c | 0x20) == 'k') set.add(0x212A, 0x212A);  // the Kelvin sign
  return set;
}

/// Every member function returns false, or nothing, where the pattern is not of the simple kind.
class ScanParser {
 public:
  explicit ScanParser(std::string_view pattern) : in_(pattern) {}

  std::optional<ScanPattern> run() {
    do {
      std::vector<ScanItem> items;
      while (!at_end() && peek() != '|') {
        if (!item(items)) return std::nullopt;
      }
      if (items.empty()) return std::nullopt;
      out_.alternatives.push_back(std::move(items));
    } while (take("|"));
    return std::move(out_);
  }

 private:
  bool at_end() const { return pos_ >= in_.size(); }
  char peek() const { return in_[pos_]; }
  bool at_quantifier() const {
    return !at_end() && std::string_view("?*+{").find(peek()) != std::string_view::npos;
  }
  bool next_is(std::string_view text) const { return in_.substr(pos_).starts_with(text); }
  bool take(std::string_view text) {
    if (!next_is(text)) return false;
    pos_ += text.size();
    return true;
  }

  std::size_t set_index(CodePointSet set) {
    const auto known = std::find(out_.sets.begin(), out_.sets.end(), set);
    if (known != out_.sets.end()) return static_cast<std::size_t>(known - out_.sets.begin());
    out_.sets.push_back(std::move(set));
    return out_.sets.size() - 1;
  }

  bool item(std::vector<ScanItem>& items) {
    ScanItem item;
    if (take("$")) {
      item.kind = ScanItem::Kind::kLineEnd;
      items.push_back(item);
      return true;
    }
    if (take("(?!")) {
      item.kind = ScanItem::Kind::kNotAhead;
      const std::optional<CodePointSet> set = atom();
      if (!set || !take(")")) return false;
      item.set = set_index(*set);
      items.push_back(item);
      return true;
    }
    if (next_is("(")) {
      if (!group(item)) return false;
      if (take("?")) item.min = 0;
      if (at_quantifier()) return false;
      items.push_back(std::move(item));
      return true;
    }
    const std::optional<CodePointSet> set = atom();
    if (!set || !quantifier(item)) return false;
    item.set = set_index(*set);
    items.push_back(item);
    return true;
  }

  /// (?:a|bc), (?i:a|bc) and (a|bc).
  bool group(ScanItem& item) {
    item.kind = ScanItem::Kind::kGroup;
    const bool any_case = take("(?i:");
    if (!any_case && !take("(?:") && !take("(")) return false;
    if (next_is("?") || next_is("*")) return false;
    do {
      std::vector<std::size_t> branch;
      char32_t previous = 0;
      while (!at_end() && peek() != '|' && peek() != ')') {
        std::optional<CodePointSet> set = atom();
        if (!set || set->empty()) return false;
        if (at_quantifier()) return false;
        if (any_case && !fold(*set, previous)) return false;
        branch.push_back(set_index(std::move(*set)));
      }
      if (branch.empty()) return false;
      item.branches.push_back(std::move(branch));
    } while (take("|"));
    return take(")");
  }

  /// The set without regard to case. `previous` is the character before it, lower-case: some pairs
  /// are one character in another case (ss, st, ff and their like), which is beyond a set.
  static bool fold(CodePointSet& set, char32_t& previous) {
    CodePointSet folded;
    char32_t last = 0;
    for (const CodePointSet::Range& range : set.ranges()) {
      if (range.last >= 0x80) return false;
      for (char32_t c = range.first; c <= range.last; ++c) {
        folded.add(without_case(c));
        last = is_ascii_letter(c) ? c | 0x20 : c;
        const bool pair_start = previous == 's' || previous == 'f';
        if (pair_start && std::u32string_view(U"stfil").find(last) != std::u32string_view::npos) {
          return false;
        }
      }
    }
    previous = last;
    set = std::move(folded);
    return true;
  }

  std::optional<std::uint32_t> number() {
    if (at_end() || peek() < '0' || peek() > '9') return std::nullopt;
    std::uint32_t value = 0;
    for (; !at_end() && peek() >= '0' && peek() <= '9'; ++pos_) {
      value = std::min(value * 10 + static_cast<std::uint32_t>(peek() - '0'), 100000u);
    }
    return value;
  }

  bool quantifier(ScanItem& item) {
    if (take("?")) {
      item.min = 0;
    } else if (take("*")) {
      item.min = 0;
      item.max = ScanItem::kNoMax;
    } else if (take("+")) {
      item.max = ScanItem::kNoMax;
    } else if (take("{")) {
      const std::optional<std::uint32_t> low = number();
      if (!low) return false;
      item.min = item.max = *low;
      if (take(",")) item.max = number().value_or(ScanItem::kNoMax);
      if (item.max < item.min || item.max == 0 || !take("}")) return false;
      return !at_quantifier();
    } else {
      return true;
    }
    item.possessive = take("+");
    return !at_quantifier();
  }

  /// One character or a set of them.
  std::optional<CodePointSet> atom() {
    if (at_end()) return std::nullopt;
    if (peek() == '[') return char_class(0);
    if (peek() == '\\') return escape();
    if (std::string_view("?*+{}()|^$.").find(peek()) != std::string_view::npos) {
      return std::nullopt;
    }
    const char32_t c = utf8::decode(in_, pos_);
    CodePointSet set;
    set.add(c, c);
    return set;
  }

  std::optional<CodePointSet> escape() {
    ++pos_;
    if (at_end()) return std::nullopt;
    const char c = peek();
    CodePointSet set;
    switch (c) {
      case 's':
      case 'S':
        set = UnicodeProperties::all().white_space();
        break;
      case 'd':
      case 'D':
        set = *UnicodeProperties::all().property("Nd");
        break;
      case 'p':
      case 'P':
        return property_escape();
      default:
        return simple_escape();
    }
    ++pos_;
    return c == 'S' || c == 'D' ? set.complement() : set;
  }

  std::optional<CodePointSet> simple_escape() {
    constexpr std::string_view kNames = "tnrfvae";
    constexpr std::string_view kValues = "\t\n\r\f\v\a\x1b";
    const std::size_t named = kNames.find(peek());
    const bool digit = peek() >= '0' && peek() <= '9';
    if (named == std::string_view::npos &&
        (digit || is_ascii_letter(static_cast<unsigned char>(peek())))) {
      return std::nullopt;
    }
    const char32_t literal = utf8::decode(in_, pos_);
    const char32_t c =
        named == std::string_view::npos ? literal : static_cast<unsigned char>(kValues[named]);
    CodePointSet set;
    set.add(c, c);
    return set;
  }

  std::optional<CodePointSet> property_escape() {
    bool negated = peek() == 'P';
    const std::size_t close = in_.find('}', pos_);
    if (!in_.substr(pos_ + 1).starts_with('{') || close == std::string_view::npos) {
      return std::nullopt;
    }
    std::string_view name = in_.substr(pos_ + 2, close - pos_ - 2);
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    pos_ = close + 1;
    const std::optional<CodePointSet> set = UnicodeProperties::all().property(name);
    if (!set) return std::nullopt;
    return negated ? set->complement() : *set;
  }

  /// [a-z\p{L}[x]], [^...] and [...&&...], which intersects all before it with all behind it.
  std::optional<CodePointSet> char_class(int depth) {
    if (depth == kClassDepthMax || next_is("[:") || next_is("[]") || next_is("[^]")) {
      return std::nullopt;
    }
    ++pos_;
    const bool negated = take("^");
    std::optional<CodePointSet> before;
    CodePointSet set;
    while (!take("]")) {
      if (at_end() || next_is("[:")) return std::nullopt;
      if (take("&&")) {
        before = before ? before->intersection(set) : set;
        set = CodePointSet();
        continue;
      }
      if (!class_item(set, depth)) return std::nullopt;
    }
    if (before) set = before->intersection(set);
    return negated ? set.complement() : set;
  }

  bool class_item(CodePointSet& set, int depth) {
    if (peek() == '[') {
      const std::optional<CodePointSet> inner = char_class(depth + 1);
      if (inner) set.add(*inner);
      return inner.has_value();
    }
    const std::optional<CodePointSet> first = class_atom();
    if (!first) return false;
    if (!next_is("-") || next_is("-]")) {
      set.add(*first);
      return true;
    }
    ++pos_;
    const std::optional<char32_t> low = only(*first);
    if (at_end() || peek() == '[' || !low) return false;
    const std::optional<CodePointSet> last = class_atom();
    const std::optional<char32_t> high = last ? only(*last) : std::nullopt;
    if (!high || *high < *low) return false;
    set.add(*low, *high);
    return true;
  }

  std::optional<CodePointSet> class_atom() {
    if (at_end()) return std::nullopt;
    if (peek() == '\\') return escape();
    const char32_t c = utf8::decode(in_, pos_);
    CodePointSet set;
    set.add(c, c);
    return set;
  }

  static std::optional<char32_t> only(const CodePointSet& set) {
    const auto& ranges = set.ranges();
    if (ranges.size() != 1 || ranges[0].first != ranges[0].last) return std::nullopt;
    return ranges[0].first;
  }

  std::string_view in_;
  std::size_t pos_ = 0;
  ScanPattern out_;
};

}  // namespace

std::optional<ScanPattern> parse_scan_pattern(std::string_view pattern) {
  return ScanParser(pattern).run();
}

}  // namespace troupe
