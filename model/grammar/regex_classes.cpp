#include "model/grammar/regex_classes.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace troupe {
namespace {

/// Long names of categories; the others of two letters are few that anybody writes.
struct LongName {
  std::string_view name, letters;
};
constexpr auto kLongNames = std::to_array<LongName>({{"Letter", "L"},
                                                     {"Lowercase_Letter", "Ll"},
                                                     {"Uppercase_Letter", "Lu"},
                                                     {"Mark", "M"},
                                                     {"Number", "N"},
                                                     {"Decimal_Number", "Nd"},
                                                     {"Punctuation", "P"},
                                                     {"Symbol", "S"},
                                                     {"Separator", "Z"},
                                                     {"Space_Separator", "Zs"},
                                                     {"Other", "C"}});

/// Decimal digits of other scripts (general category Nd), which Python's \d takes.
const CodeSet::Range kOtherDigits[] = {
    {0x660, 0x669},     {0x6F0, 0x6F9},     {0x7C0, 0x7C9},     {0x966, 0x96F},
    {0x9E6, 0x9EF},     {0xA66, 0xA6F},     {0xAE6, 0xAEF},     {0xB66, 0xB6F},
    {0xBE6, 0xBEF},     {0xC66, 0xC6F},     {0xCE6, 0xCEF},     {0xD66, 0xD6F},
    {0xDE6, 0xDEF},     {0xE50, 0xE59},     {0xED0, 0xED9},     {0xF20, 0xF29},
    {0x1040, 0x1049},   {0x1090, 0x1099},   {0x17E0, 0x17E9},   {0x1810, 0x1819},
    {0x1946, 0x194F},   {0x19D0, 0x19D9},   {0x1A80, 0x1A89},   {0x1A90, 0x1A99},
    {0x1B50, 0x1B59},   {0x1BB0, 0x1BB9},   {0x1C40, 0x1C49},   {0x1C50, 0x1C59},
    {0xA620, 0xA629},   {0xA8D0, 0xA8D9},   {0xA900, 0xA909},   {0xA9D0, 0xA9D9},
    {0xA9F0, 0xA9F9},   {0xAA50, 0xAA59},   {0xABF0, 0xABF9},   {0xFF10, 0xFF19},
    {0x104A0, 0x104A9}, {0x10D30, 0x10D49}, {0x11066, 0x1106F}, {0x110F0, 0x110F9},
    {0x11136, 0x1113F}, {0x111D0, 0x111D9}, {0x112F0, 0x112F9}, {0x11450, 0x11459},
    {0x114D0, 0x114D9}, {0x11650, 0x11659}, {0x116C0, 0x116E3}, {0x11730, 0x11739},
    {0x118E0, 0x118E9}, {0x11950, 0x11959}, {0x11BF0, 0x11BF9}, {0x11C50, 0x11C59},
    {0x11D50, 0x11D59}, {0x11DA0, 0x11DA9}, {0x11F50, 0x11F59}, {0x16130, 0x16139},
    {0x16A60, 0x16A69}, {0x16AC0, 0x16AC9}, {0x16B50, 0x16B59}, {0x1CCF0, 0x1CCF9},
    {0x1D7CE, 0x1D7FF}, {0x1E140, 0x1E149}, {0x1E2F0, 0x1E2F9}, {0x1E4F0, 0x1E4F9},
    {0x1E5F1, 0x1E5FA}, {0x1E950, 0x1E959}, {0x1FBF0, 0x1FBF9}};

/// General punctuation, of which no dialect thinks as letters.
constexpr CodeSet::Range kPunctuation{0x2010, 0x205E};

/// Of a category of one or two letters; nothing: there is none.
std::optional<RegexClass> characters_of(std::string_view name) {
  std::vector<CodeSet::Range> taken, unassigned;
  const auto add = [](std::vector<CodeSet::Range>& to, std::uint32_t code) {
    if (!to.empty() && to.back().second + 1 == code)
      to.back().second = code;
    else
      to.emplace_back(code, code);
  };
  for (std::uint32_t code = 0; code <= CodeSet::kMax; ++code) {
    const std::string_view of = utf8proc_category_string(static_cast<utf8proc_int32_t>(code));
    if (of.starts_with(name)) add(taken, code);
    if (of == "Cn") add(unassigned, code);
  }
  if (taken.empty()) return std::nullopt;
  // Another Unicode may know more characters.
  const CodeSet surely(std::move(taken));
  return RegexClass{surely, surely | CodeSet(std::move(unassigned))};
}

}  // namespace

RegexClass RegexClass::digit() {
  const CodeSet ascii({{'0', '9'}});
  return {ascii, ascii | CodeSet({std::begin(kOtherDigits), std::end(kOtherDigits)})};
}

RegexClass RegexClass::word() {
  const CodeSet ascii({{'0', '9'}, {'A', 'Z'}, {'a', 'z'}, {'_', '_'}});
  return {ascii, ascii | CodeSet({{0x80, kPunctuation.first - 1},
                                  {kPunctuation.second + 1, CodeSet::kMax}})};
}

RegexClass RegexClass::space() {
  const CodeSet ascii({{'\t', '\r'}, {' ', ' '}});
  return {ascii, ascii | CodeSet({{0x1C, 0x1F},
                                  {0x85, 0x85},
                                  {0xA0, 0xA0},
                                  {0x1680, 0x1680},
                                  {0x180E, 0x180E},
                                  {0x2000, 0x200A},
                                  {0x2028, 0x2029},
                                  {0x202F, 0x202F},
                                  {0x205F, 0x205F},
                                  {0x3000, 0x3000},
                                  {0xFEFF, 0xFEFF}})};
}

RegexClass RegexClass::any_case() const {
  RegexClass out = *this;
  std::vector<CodeSet::Range> other;
  for (std::uint32_t letter = 'a'; letter <= 'z'; ++letter) {
    const std::uint32_t upper = letter - 'a' + 'A';
    if (surely.has(letter)) other.emplace_back(upper, upper);
    if (surely.has(upper)) other.emplace_back(letter, letter);
  }
  out.surely = out.surely | CodeSet(other);
  // Beyond ASCII dialects fold letters in ways of their own.
  out.maybe = out.maybe | out.surely | CodeSet({{0x80, CodeSet::kMax}});
  return out;
}

std::optional<RegexClass> RegexClass::category(std::string_view name) {
  const auto known = std::ranges::find(kLongNames, name, &LongName::name);
  if (known != kLongNames.end()) name = known->letters;
  if (name.empty() || name.size() > 2) return std::nullopt;
  // Those that there are, once they were asked for: it takes a look at all characters.
  static std::mutex mutex;
  static std::map<std::string, RegexClass, std::less<>> found;
  const std::lock_guard lock(mutex);
  if (const auto at = found.find(name); at != found.end()) return at->second;
  auto searched = characters_of(name);
  if (searched) found.emplace(name, *searched);
  return searched;
}

RegexClass RegexClass::dot() {
  return {CodeSet({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}).complement(),
          CodeSet::one('\n').complement()};
}

}  // namespace troupe
