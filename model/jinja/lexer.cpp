#include "model/jinja/lexer.h"

#include <algorithm>
#include <array>

#include "model/jinja/literals.h"
#include "model/jinja/text.h"

namespace troupe::jinja {
namespace {

using TokenKind = Token::Kind;

constexpr std::string_view kBlanks = " \t\n\r\v\f";
constexpr std::array<std::string_view, 26> kSigns = {
    "**", "//", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

/// Line ends become \n, and one at the end of the template goes.
std::string with_plain_lines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size() && status_.ok()) outside();
    if (!status_.ok()) return status_.error();
    add(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return source_.substr(at_); }
  bool next_is(std::string_view text) const { return rest().starts_with(text); }

  void add(TokenKind kind, std::string text = {}) {
    tokens_.push_back({kind, std::move(text), {}, line_});
  }
  void fail(const std::string& what) {
    if (status_.ok()) status_ = syntax_error(line_, what);
    at_ = source_.size();
  }
  void advance(std::size_t bytes) {
    const std::string_view passed = rest().substr(0, bytes);
    line_ += static_cast<int>(std::count(passed.begin(), passed.end(), '\n'));
    if (!passed.empty()) line_starts_ = passed.back() == '\n';
    at_ += passed.size();
  }
  void skip_blanks() { advance(std::min(rest().find_first_not_of(kBlanks), rest().size())); }
  void skip_space() { advance(rest().size() - stripped_left(rest()).size()); }
  static std::string_view stripped_left(std::string_view text) {
    return text::strip(text, std::nullopt, text::Ends::kLeft);
  }

  /// Where the next "{{", "{%" or "{#" is.
  std::size_t find_tag(std::size_t from) const {
    for (std::size_t i = source_.find('{', from); i != std::string_view::npos;
         i = source_.find('{', i + 1)) {
      const char next = i + 1 < source_.size() ? source_[i + 1] : ' ';
      if (next == '{' || next == '%' || next == '#') return i;
    }
    return source_.size();
  }

  /// Text before a tag, without the white space that the tag takes.
  std::string_view data_before(std::size_t tag) const {
    std::string_view data = source_.substr(at_, tag - at_);
    if (tag + 2 > source_.size()) return data;
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    if (sign == '-') return text::strip(data, std::nullopt, text::Ends::kRight);
    if (sign == '+' || source_[tag + 1] == '{') return data;
    const std::size_t line = data.rfind('\n') + 1;  // npos + 1 == 0
    if (line == 0 && !line_starts_) return data;
    return stripped_left(data.substr(line)).empty() ? data.substr(0, line) : data;
  }

  void outside() {
    const std::size_t tag = find_tag(at_);
    const std::string_view data = data_before(tag);
    if (!data.empty()) add(TokenKind::kData, std::string(data));
    advance(tag - at_);
    if (at_ >= source_.size()) return;
    const char kind = source_[at_ + 1];
    advance(2);
    if (at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+')) advance(1);
    if (kind == '#') return comment();
    if (kind == '%' && raw_begins()) return raw();
    add(kind == '%' ? TokenKind::kBlockBegin : TokenKind::kOutputBegin);
    inside(kind == '%');
  }

  void comment() {
    const std::size_t end = rest().find("#}");
    if (end == std::string_view::npos) return fail("a comment is not closed");
    const char sign = end > 0 ? rest()[end - 1] : ' ';
    advance(end + 2);
    after_tag(sign);
  }

  /// What the end of a block or a comment takes of the text after it.
  void after_tag(char sign) {
    if (sign == '-')
      skip_space();
    else if (sign != '+' && next_is("\n"))
      advance(1);
  }

  bool raw_begins() {
    const std::string_view text = stripped_left(rest());
    if (!text.starts_with("raw")) return false;
    const std::string_view after = stripped_left(text.substr(3));
    return after.starts_with("%}") || after.starts_with("-%}");
  }

  void raw() {
    const bool strips = rest()[rest().find("%}") - 1] == '-';
    advance(rest().find("%}") + 2);
    if (strips) skip_space();
    for (std::size_t tag = source_.find("{%", at_); tag != std::string_view::npos;
         tag = source_.find("{%", tag + 2)) {
      std::string_view text = source_.substr(tag + 2);
      if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
      text = stripped_left(text);
      if (!text.starts_with("endraw")) continue;
      text = stripped_left(text.substr(6));
      const char sign = text.empty() ? ' ' : text.front();
      if (sign == '-' || sign == '+') text.remove_prefix(1);
      if (!text.starts_with("%}")) continue;
      const std::string_view data = data_before(tag);
      if (!data.empty()) add(TokenKind::kData, std::string(data));
      advance(source_.size() - at_ - text.size() + 2);
      return after_tag(sign);
    }
    fail("a raw block is not closed");
  }

  bool end_tag(bool block) {
    const std::string_view end = block ? "%}" : "}}";
    std::string_view text = rest();
    char sign = ' ';
    if (text.starts_with('-') || (block && text.starts_with('+'))) {
      sign = text.front();
      text.remove_prefix(1);
    }
    if (!text.starts_with(end)) return false;
    add(block ? TokenKind::kBlockEnd : TokenKind::kOutputEnd);
    advance(rest().size() - text.size() + 2);
    if (block)
      after_tag(sign);
    else if (sign == '-')
      skip_space();
    return true;
  }

  void inside(bool block) {
    std::string open;  // The brackets that are.
    while (status_.ok()) {
      if (open.empty() && end_tag(block)) return;
      if (at_ >= source_.size()) return fail("a tag is not closed");
      const char c = source_[at_];
      if (kBlanks.find(c) != std::string_view::npos) {
        skip_blanks();
      } else if (c == '\'' || c == '"') {
        text_literal(c);
      } else if (text::is_digit(static_cast<unsigned char>(c))) {
        number();
      } else if (const std::size_t length = name_length(rest()); length > 0) {
        if (length > kNameBytesMax) return fail("a name is too long");
        add(TokenKind::kName, std::string(rest().substr(0, length)));
        advance(length);
      } else {
        sign(open);
      }
    }
  }

  void text_literal(char quote) {
    std::size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return fail("a text in quotes is not closed");
    auto text = unescaped(source_.substr(at_ + 1, end - at_ - 1));
    if (!text) return fail("a text in quotes has an escape that is no character");
    add(TokenKind::kText, std::move(*text));
    advance(end + 1 - at_);
  }

  void number() {
    // A digit after a dot is an index: x.0
    const bool after_dot = !tokens_.empty() && tokens_.back().is(".");
    const NumberLiteral literal = read_number(rest(), !after_dot);
    if (literal.length == 0) return fail("a number is too large or has no such form");
    add(TokenKind::kNumber, std::string(rest().substr(0, literal.length)));
    tokens_.back().value = literal.value;
    advance(literal.length);
  }

  void sign(std::string& open) {
    const auto found =
        std::find_if(kSigns.begin(), kSigns.end(), [&](std::string_view s) { return next_is(s); });
    if (found == kSigns.end()) {
      return fail("an unexpected character: " +
                  std::string(rest().substr(0, text::offset(rest().substr(0, 8), 1))));
    }
    const std::string_view sign = *found;
    if (std::string_view("([{").find(sign) != std::string_view::npos) {
      open += sign == "(" ? ')' : sign == "[" ? ']' : '}';
    } else if (sign == ")" || sign == "]" || sign == "}") {
      if (open.empty() || open.back() != sign.front())
        return fail("'" + std::string(sign) + "' closes nothing");
      open.pop_back();
    }
    add(TokenKind::kSign, std::string(sign));
    advance(sign.size());
  }

  std::string_view source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;  // The last thing passed ended a line.
  std::vector<Token> tokens_;
  Status status_;
};

}  // namespace

Error syntax_error(int line, const std::string& what) {
  return invalid_argument("the chat template cannot be read: line " + std::to_string(line) + ": " +
                          what);
}

Result<std::vector<Token>> tokenize(std::string_view source) {
  const std::string plain = with_plain_lines(source);
  return Lexer(plain).run();
}

}  // namespace troupe::jinja
