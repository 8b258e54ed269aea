#include "model/tokenizer/unicode_properties.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "model/tokenizer/unicode_since_14.h"

namespace troupe {
namespace {

constexpr std::array<std::string_view, 37> kCategoryNames = {
    "L",  "M",  "N",  "P",  "S",  "Z",  "C",  "Lu", "Ll", "Lt", "Lm", "Lo", "Mn",
    "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
    "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"};

/// Script=Han of Unicode 16 (Scripts.txt).
constexpr CodePointSet::Range kHan[] = {
    {0x2E80, 0x2E99},   {0x2E9B, 0x2EF3},   {0x2F00, 0x2FD5},   {0x3005, 0x3005},
    {0x3007, 0x3007},   {0x3021, 0x3029},   {0x3038, 0x303B},   {0x3400, 0x4DBF},
    {0x4E00, 0x9FFF},   {0xF900, 0xFA6D},   {0xFA70, 0xFAD9},   {0x16FE2, 0x16FE3},
    {0x16FF0, 0x16FF1}, {0x20000, 0x2A6DF}, {0x2A700, 0x2B739}, {0x2B740, 0x2B81D},
    {0x2B820, 0x2CEA1}, {0x2CEB0, 0x2EBE0}, {0x2EBF0, 0x2EE5D}, {0x2F800, 0x2FA1D},
    {0x30000, 0x3134A}, {0x31350, 0x323AF}};

}  // namespace

const UnicodeProperties& UnicodeProperties::all() {
  static const UnicodeProperties properties;
  return properties;
}

UnicodeProperties::UnicodeProperties() {
  // The library knows Unicode 15 at most; the table has what came since 14.
  auto newer = std::begin(unicode::kSinceUnicode14);
  for (char32_t c = 0; c <= CodePointSet::kLast; ++c) {
    while (newer != std::end(unicode::kSinceUnicode14) && newer->last < c) ++newer;
    const bool is_newer = newer != std::end(unicode::kSinceUnicode14) && newer->first <= c;
    const char* category =
        is_newer ? newer->category : utf8proc_category_string(static_cast<utf8proc_int32_t>(c));
    // The library has one text for each: of a million characters few are compared.
    if (!runs_.empty() &&
        (runs_.back().category.data() == category || runs_.back().category == category)) {
      runs_.back().range.last = c;
    } else {
      runs_.push_back({{c, c}, category});
    }
  }
}

std::optional<CodePointSet> UnicodeProperties::property(std::string_view name) const {
  CodePointSet set;
  if (name == "Han") {
    for (const CodePointSet::Range& range : kHan) set.add(range.first, range.last);
    return set;
  }
  if (std::find(kCategoryNames.begin(), kCategoryNames.end(), name) == kCategoryNames.end()) {
    return std::nullopt;
  }
  for (const Run& run : runs_) {
    if (run.category.starts_with(name)) set.add(run.range.first, run.range.last);
  }
  return set;
}

CodePointSet UnicodeProperties::white_space() const {
  CodePointSet set = *property("Z");
  set.add(0x9, 0xD);
  set.add(0x85, 0x85);
  return set;
}

}  // namespace troupe
