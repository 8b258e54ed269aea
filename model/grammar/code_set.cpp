#include "model/grammar/code_set.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "model/grammar/grammar_writer.h"

namespace troupe {
namespace {

constexpr CodeSet::Range kSurrogates{0xD800, 0xDFFF};

/// Letters and digits stand for themselves; all else is written by number, so that no character is
/// taken for a sign of the notation.
std::string class_character(std::uint32_t code) {
  const bool alphanumeric =
      (code >= '0' && code <= '9') || (code >= 'A' && code <= 'Z') || (code >= 'a' && code <= 'z');
  if (alphanumeric) return {static_cast<char>(code)};
  std::array<char, 16> out{};
  const char* format = code < 0x100 ? "\\x%02X" : code < 0x10000 ? "\\u%04X" : "\\U%08X";
  std::snprintf(out.data(), out.size(), format, code);
  return out.data();
}

/// The one escape for a character that may not stand raw in a JSON string.
std::string json_escape(std::uint32_t code) {
  switch (code) {
    case '"':
      return R"(\")";
    case '\\':
      return R"(\\)";
    case '\b':
      return R"(\b)";
    case '\f':
      return R"(\f)";
    case '\n':
      return R"(\n)";
    case '\r':
      return R"(\r)";
    case '\t':
      return R"(\t)";
    default:
      break;
  }
  std::array<char, 8> out{};
  std::snprintf(out.data(), out.size(), "\\u%04x", code);
  return out.data();
}

}  // namespace

CodeSet::CodeSet(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end());
  const auto add = [this](std::uint32_t first, std::uint32_t last) {
    if (first > last) return;
    if (!ranges_.empty() && first <= ranges_.back().second + 1)
      ranges_.back().second = std::max(ranges_.back().second, last);
    else
      ranges_.emplace_back(first, last);
  };
  for (const auto& [first, last] : ranges) {
    if (first < kSurrogates.first) add(first, std::min(last, kSurrogates.first - 1));
    if (last > kSurrogates.second) add(std::max(first, kSurrogates.second + 1), last);
  }
}

bool CodeSet::has(std::uint32_t code) const {
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), Range{code, kMax});
  return after != ranges_.begin() && std::prev(after)->second >= code;
}

CodeSet CodeSet::complement() const {
  std::vector<Range> out;
  std::uint32_t next = 0;
  for (const auto& [first, last] : ranges_) {
    if (first > next) out.emplace_back(next, first - 1);
    next = last + 1;
  }
  if (next <= kMax) out.emplace_back(next, kMax);
  return CodeSet(std::move(out));
}

CodeSet operator|(const CodeSet& a, const CodeSet& b) {
  auto both = a.ranges_;
  both.insert(both.end(), b.ranges_.begin(), b.ranges_.end());
  return CodeSet(std::move(both));
}

CodeSet operator&(const CodeSet& a, const CodeSet& b) {
  std::vector<CodeSet::Range> out;
  for (std::size_t i = 0, j = 0; i < a.ranges_.size() && j < b.ranges_.size();) {
    const auto& [a_first, a_last] = a.ranges_[i];
    const auto& [b_first, b_last] = b.ranges_[j];
    if (std::max(a_first, b_first) <= std::min(a_last, b_last))
      out.emplace_back(std::max(a_first, b_first), std::min(a_last, b_last));
    if (a_last < b_last)
      ++i;
    else
      ++j;
  }
  return CodeSet(std::move(out));
}

std::string CodeSet::text() const {
  // What is left out of a large set is mostly shorter to say. Surrogates are in no set.
  const CodeSet others = complement();
  const bool negated = has(kMax) && !others.empty();
  if (ranges_ == all().ranges_) return ".";
  std::string out = negated ? "[^" : "[";
  for (const auto& [first, last] : negated ? others.ranges_ : ranges_) {
    out += class_character(first);
    if (last > first) out += (last > first + 1 ? "-" : "") + class_character(last);
  }
  return out + "]";
}

std::string spelled(const CodeSet& set, Spelling spelling) {
  const auto& ranges = set.ranges();
  const bool single = ranges.size() == 1 && ranges.front().first == ranges.front().second;
  std::string text;
  if (spelling == Spelling::kPlain) {
    if (!single) return set.text();
    append_utf8(text, ranges.front().first);
    return GrammarWriter::literal(text);
  }
  const CodeSet escaped({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}});
  const CodeSet raw = set & escaped.complement();
  if (!raw.empty() && single) return spelled(set, Spelling::kPlain);
  const CodeSet brief({{'\b', '\n'}, {'\f', '\r'}, {'"', '"'}, {'\\', '\\'}});
  // Other control characters stand for nothing that a text needs: only where nothing else will do.
  const CodeSet few = set & ((set & brief).empty() && raw.empty() ? escaped : brief);
  std::string letters;
  if (raw.empty() || spelling == Spelling::kJson) {
    for (const auto& [first, last] : few.ranges()) {
      for (std::uint32_t code = first; code <= last; ++code)
        letters += (letters.empty() ? "" : " | ") + GrammarWriter::literal(json_escape(code));
    }
  }
  if (raw.empty()) return letters.find('|') == std::string::npos ? letters : "(" + letters + ")";
  return letters.empty() ? raw.text() : "(" + raw.text() + " | " + letters + ")";
}

std::string json_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || c == '"' || c == '\\')
      out += json_escape(byte);
    else
      out += c;
  }
  return out;
}

std::vector<std::uint32_t> code_points(std::string_view text) {
  std::vector<std::uint32_t> out;
  const auto* at = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  auto left = static_cast<utf8proc_ssize_t>(text.size());
  while (left > 0) {
    utf8proc_int32_t code = -1;
    const utf8proc_ssize_t taken = utf8proc_iterate(at, left, &code);
    if (taken > 0) out.push_back(static_cast<std::uint32_t>(code));
    at += std::max<utf8proc_ssize_t>(taken, 1);
    left -= std::max<utf8proc_ssize_t>(taken, 1);
  }
  return out;
}

void append_utf8(std::string& out, std::uint32_t code) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), bytes.data());
  out.append(reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(count));
}

}  // namespace troupe
