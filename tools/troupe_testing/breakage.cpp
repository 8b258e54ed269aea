#include "tools/troupe_testing/breakage.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

namespace troupe::cli {
namespace {

/// What stands before the next colon; it is taken away.
std::string_view take_field(std::string_view& rest) {
  const std::size_t end = std::min(rest.find(':'), rest.size());
  const std::string_view field = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return field;
}

template <class Number>
bool read_number(std::string_view digits, Number& value) {
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), value);
  return error == std::errc() && end == digits.end();
}

}  // namespace

Result<std::optional<Breakage>> parse_breakage(const std::string& text) {
  if (text.empty()) return std::optional<Breakage>();
  std::string_view rest = text;
  Breakage breakage;
  breakage.op = take_field(rest);
  const std::string_view after = take_field(rest), round = take_field(rest);
  bool good = breakage.op == "linear" || breakage.op == "expert_mlp" || breakage.op == "attention";
  good = good && rest.empty() && (after.empty() || read_number(after, breakage.after_s));
  if (!round.empty()) good = good && read_number(round, breakage.round_s.emplace());
  if (!good || breakage.round_s == 0u)
    return invalid_argument("TROUPE_TEST_BREAK is OP[:SECONDS[:ROUND]].");
  return std::optional(std::move(breakage));
}

Result<kernels::InjectedFailure> parse_injected_failure(const std::string& text) {
  using What = kernels::InjectedFailure::What;
  kernels::InjectedFailure injected;
  if (text.empty()) return injected;
  std::string_view rest = text;
  const std::string_view named = take_field(rest);
  constexpr std::pair<std::string_view, What> kKinds[] = {
      {"launch", What::kLaunch}, {"ecc", What::kEcc},   {"lost", What::kLost},
      {"memory", What::kMemory}, {"slow", What::kSlow}, {"hang", What::kHang}};
  for (const auto& [name, what] : kKinds)
    if (named == name) injected.what = what;
  const bool number = rest.empty() || read_number(rest, injected.after);
  if (injected.what == What::kNone || !number)
    return invalid_argument("TROUPE_TEST_DEVICE is WHAT[:AFTER].");
  return injected;
}

}  // namespace troupe::cli
