#include "model/grammar/regex.h"

#include <algorithm>

#include "model/grammar/compiled_grammar.h"
#include "model/grammar/grammar_writer.h"
#include "model/grammar/text_automaton.h"

namespace troupe {
namespace {

std::size_t plus(std::size_t a, std::size_t b) {
  return a == Regex::kUnbounded || b == Regex::kUnbounded ? Regex::kUnbounded : a + b;
}

std::size_t times(std::size_t a, std::size_t b) {
  if (a == 0 || b == 0) return 0;
  return a == Regex::kUnbounded || b == Regex::kUnbounded ? Regex::kUnbounded : a * b;
}

std::string joined(const std::vector<Regex>& parts, std::string_view between, Spelling spelling) {
  std::string out;
  bool open = false;  // `out` ends with a text that goes on
  for (const Regex& part : parts) {
    const bool group = part.kind == Regex::Kind::kAlternate && parts.size() > 1;
    std::string one = part.expression(spelling);
    const bool text = part.kind == Regex::Kind::kSet && one.front() == '"' && between.empty();
    if (open && text) {
      out.pop_back();
      out += one.substr(1);
    } else {
      if (!out.empty()) out.append(between).append(" ");
      out += group ? "(" + one + ")" : one;
    }
    open = text;
  }
  return out;
}

}  // namespace

Regex Regex::set(CodeSet surely, CodeSet maybe) {
  Regex out;
  out.kind = Kind::kSet;
  out.surely = std::move(surely);
  out.maybe = std::move(maybe);
  return out;
}

Regex Regex::repeat(Regex part, std::size_t min, std::size_t max) {
  Regex out;
  out.kind = Kind::kRepeat;
  out.parts.push_back(std::move(part));
  out.min = min;
  out.max = max;
  return out;
}

Regex Regex::concat(std::vector<Regex> parts) {
  if (parts.empty()) return {};
  if (parts.size() == 1) return std::move(parts.front());
  Regex out;
  out.kind = Kind::kConcat;
  out.parts = std::move(parts);
  return out;
}

Regex Regex::text(std::string_view text) {
  std::vector<Regex> parts;
  for (const std::uint32_t code : code_points(text)) parts.push_back(set(CodeSet::one(code)));
  return concat(std::move(parts));
}

Regex::Trimmed Regex::trimmed() const {
  Trimmed out;
  if (looks()) {
    out.regex = *this;
    return out;
  }
  if (kind == Kind::kStart || kind == Kind::kEnd) {
    out.start = kind == Kind::kStart;
    out.end = kind == Kind::kEnd;
    return out;
  }
  if (kind != Kind::kConcat) {
    out.regex = *this;
    return out;
  }
  std::size_t first = 0;
  std::size_t last = parts.size();
  while (first < last && parts[first].kind == Kind::kStart) ++first;
  while (last > first && parts[last - 1].kind == Kind::kEnd) --last;
  out.start = first > 0;
  out.end = last < parts.size();
  out.regex = concat({parts.begin() + static_cast<std::ptrdiff_t>(first),
                      parts.begin() + static_cast<std::ptrdiff_t>(last)});
  return out;
}

bool Regex::has_anchors() const {
  return kind == Kind::kStart || kind == Kind::kEnd || looks() ||
         std::any_of(parts.begin(), parts.end(), [](const Regex& p) { return p.has_anchors(); });
}

Regex::Lengths Regex::lengths() const {
  Lengths out{0, 0};
  if (kind == Kind::kSet) out = {1, 1};
  if (kind == Kind::kAlternate) out = {kUnbounded, 0};
  for (const Regex& part : parts) {
    const Lengths one = part.lengths();
    if (kind == Kind::kAlternate)
      out = {std::min(out.min, one.min), std::max(out.max, one.max)};
    else if (kind == Kind::kRepeat)
      out = {times(one.min, min), times(one.max, max)};
    else
      out = {plus(out.min, one.min), plus(out.max, one.max)};
  }
  return out;
}

int Regex::depth() const {
  int deepest = 0;
  for (const Regex& part : parts) deepest = std::max(deepest, part.depth());
  return deepest + 1;
}

std::string Regex::counts() const {
  if (min == 1 && max == 1) return "";
  if (max == kUnbounded && min <= 1) return min == 0 ? "*" : "+";
  if (min == 0 && max == 1) return "?";
  if (max == kUnbounded) return "{" + std::to_string(min) + ",}";
  if (min == max) return "{" + std::to_string(min) + "}";
  return "{" + std::to_string(min) + "," + std::to_string(max) + "}";
}

std::string Regex::expression(Spelling spelling) const {
  switch (kind) {
    case Kind::kSet:
      return spelled(surely, spelling);
    case Kind::kConcat:
      return joined(parts, "", spelling);
    case Kind::kAlternate:
      return joined(parts, " |", spelling);
    case Kind::kRepeat: {
      const Regex& part = parts.front();
      std::string inside = part.expression(spelling);
      if (part.kind != Kind::kSet) inside = "(" + inside + ")";
      return inside + counts();
    }
    case Kind::kEmpty:
    case Kind::kStart:
    case Kind::kEnd:
      break;
  }
  return "\"\"";
}

Result<std::string> GrammarWriter::regex(std::string_view pattern) {
  const auto parsed = Regex::parse(pattern);
  if (!parsed) return parsed.error();
  const auto text = RegexText::whole(*parsed);
  if (!text) return text.error();
  if (text->empty()) return invalid_argument("regular expression: it matches no text.");
  std::string name = rule("regex", text->write(*this, Spelling::kPlain));
  if (rules_.size() > CompiledGrammar::kTextBytesMax)
    return invalid_argument("regular expression: its grammar would be too long.");
  return name;
}

}  // namespace troupe
