#include "model/spec/name_patterns.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cctype>
#include <string_view>

namespace troupe {
namespace {

// A name has some 60 letters. Real lists have a handful of patterns, and up to some hundred names.
constexpr std::size_t kPatternsMax = 64;
constexpr std::size_t kNamesMax = 1u << 16;
constexpr std::size_t kPatternBytesMax = 1024;
constexpr std::uint32_t kMatchSteps = 2000;

/// "model.layers.*.self_attn" as a regular expression, which ends at a dot.
std::string from_glob(const std::string& glob) {
  std::string pattern;
  for (const char c : glob) {
    if (c == '*') {
      pattern += ".*";
    } else {
      if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_') pattern += '\\';
      pattern += c;
    }
  }
  return pattern + "(?:\\.|$)";
}

/// Whether the parts of `name` between dots have those of `part` among them, one after the other.
bool holds(std::string_view name, std::string_view part) {
  for (auto at = name.find(part); at != name.npos; at = name.find(part, at + 1)) {
    const auto end = at + part.size();
    if ((at == 0 || name[at - 1] == '.') && (end == name.size() || name[end] == '.')) return true;
  }
  return false;
}

/// "layers.0." as people write it, for "layers.0".
std::string without_dots(const std::string& item) {
  const auto first = item.find_first_not_of('.');
  return first == item.npos ? "" : item.substr(first, item.find_last_not_of('.') + 1 - first);
}

struct Free {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

}  // namespace

struct NamePatterns::Compiled {
  std::string text;
  std::unique_ptr<pcre2_code, Free> code;
};

NamePatterns::NamePatterns() = default;
NamePatterns::~NamePatterns() = default;
NamePatterns::NamePatterns(NamePatterns&&) noexcept = default;
NamePatterns& NamePatterns::operator=(NamePatterns&&) noexcept = default;

Result<NamePatterns> NamePatterns::compile(const std::vector<std::string>& list, Syntax syntax) {
  NamePatterns found;
  if (list.size() > kNamesMax)
    return invalid_argument("has more than " + std::to_string(kNamesMax) + " names");
  for (const std::string& item : list) {
    if (syntax == Syntax::kPart) {
      if (std::string part = without_dots(item); !part.empty())
        found.parts_.push_back(std::move(part));
      continue;
    }
    const bool regex = syntax == Syntax::kExactOrRegex && item.starts_with("re:");
    if (syntax == Syntax::kExactOrRegex && !regex) {
      found.exact_.insert(item);
      continue;
    }
    if (item.size() > kPatternBytesMax || found.patterns_.size() == kPatternsMax)
      return invalid_argument("has patterns that are too long, or more than " +
                              std::to_string(kPatternsMax) + " of them");
    const std::string text = regex ? item.substr(3) : from_glob(item);
    int error = 0;
    PCRE2_SIZE at = 0;
    std::unique_ptr<pcre2_code, Free> code(
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                      PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C, &error, &at, nullptr));
    if (!code)
      return invalid_argument("has the pattern '" + item.substr(0, 64) +
                              "', which is no regular expression");
    found.patterns_.push_back({item, std::move(code)});
  }
  return found;
}

Result<bool> NamePatterns::match(const std::string& name) const {
  if (exact_.contains(name)) return true;
  for (const std::string& part : parts_)
    if (holds(name, part)) return true;
  if (patterns_.empty()) return false;
  const std::unique_ptr<pcre2_match_context, Free> context(pcre2_match_context_create(nullptr));
  const std::unique_ptr<pcre2_match_data, Free> data(pcre2_match_data_create(1, nullptr));
  if (!context || !data) return resource_exhausted("no memory to match a pattern");
  pcre2_set_match_limit(context.get(), kMatchSteps);
  for (const Compiled& pattern : patterns_) {
    const int count =
        pcre2_match(pattern.code.get(), reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0,
                    0, data.get(), context.get());
    if (count >= 0) return true;
    if (count != PCRE2_ERROR_NOMATCH)
      return invalid_argument("has the pattern '" + pattern.text.substr(0, 64) +
                              "', which takes too long to match");
  }
  return false;
}

}  // namespace troupe
