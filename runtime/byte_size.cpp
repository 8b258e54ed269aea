#include "runtime/byte_size.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <utility>

namespace troupe {
namespace {

constexpr std::array<std::pair<std::string_view, double>, 10> kUnits = {{
    {"", 1.0}, {"B", 1.0},
    {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"TiB", 1099511627776.0},
    {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
}};

/// A number without a unit that is smaller was meant to have one.
constexpr double kBareBytesMin = 64 << 10;

}  // namespace

Result<std::uint64_t> parse_byte_size(std::string_view text) {
  const auto fail = [&] {
    return invalid_argument("'" + std::string(text) +
                            "' is no amount of memory; write 512MiB, 80GiB or bytes.");
  };
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number,
                                            std::chars_format::fixed);
  if (error != std::errc() || !(number >= 0)) return fail();
  const std::string_view unit(end, text.data() + text.size() - end);
  for (const auto& [name, factor] : kUnits) {
    if (unit != name) continue;
    const double bytes = number * factor;
    if (!(bytes < 9.2e18)) return fail();
    if (unit.empty() && bytes > 0 && bytes < kBareBytesMin)
      return invalid_argument("'" + std::string(text) + "' without a unit is bytes; write " +
                              std::string(text) + (number < 4096 ? "GiB." : "MiB."));
    return static_cast<std::uint64_t>(std::llround(bytes));
  }
  return fail();
}

std::string format_byte_size(std::uint64_t bytes) {
  constexpr std::array<const char*, 5> kNames = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kNames.size()) value /= 1024, ++unit;
  char text[64];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, kNames[unit]);
  return text;
}

}  // namespace troupe
