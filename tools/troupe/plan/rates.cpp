#include "tools/troupe/plan/rates.h"

#include <charconv>
#include <cstdio>
#include <span>

namespace troupe {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};
constexpr Unit kBandwidths[] = {
    {"B/s", 1},           {"KB/s", 1e3},           {"MB/s", 1e6},
    {"GB/s", 1e9},        {"TB/s", 1e12},          {"KiB/s", 1024.0},
    {"MiB/s", 1048576.0}, {"GiB/s", 1073741824.0}, {"TiB/s", 1099511627776.0},
    {"Mbit/s", 1e6 / 8},  {"Gbit/s", 1e9 / 8},     {"Tbit/s", 1e12 / 8},
};
constexpr Unit kComputes[] = {
    {"GFLOP/s", 1e9}, {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15},
    {"GFLOPS", 1e9},  {"TFLOPS", 1e12},  {"PFLOPS", 1e15},
};

/// A typing error rather than a machine.
struct Bounds {
  double least, most;
};
constexpr Bounds kBandwidthBounds = {1e6, 1e15}, kComputeBounds = {1e8, 1e18};

Result<double> parse(std::string_view flag, std::string_view text, std::span<const Unit> units,
                     const Bounds& bounds, const char* write) {
  const std::string said = std::string(flag) + " '" + std::string(text.substr(0, 32)) + "'";
  double number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  const std::string_view name(end, static_cast<std::size_t>(text.data() + text.size() - end));
  if (error == std::errc())
    for (const Unit& unit : units) {
      if (name != unit.name) continue;
      const double value = number * unit.factor;
      if (value >= bounds.least && value <= bounds.most) return value;
      return invalid_argument(said + " is no speed that a device has; write such as " + write +
                              ".");
    }
  return invalid_argument(said + " is no rate; write such as " + write + ".");
}

}  // namespace

Result<double> parse_bandwidth(std::string_view flag, std::string_view text) {
  return parse(flag, text, kBandwidths, kBandwidthBounds, "3.0TB/s, 50GB/s or 400Gbit/s");
}

Result<double> parse_compute(std::string_view flag, std::string_view text) {
  return parse(flag, text, kComputes, kComputeBounds, "800TFLOP/s or 350GFLOP/s");
}

std::string decimal(double value) {
  constexpr const char* kUnits[] = {"", "k", "M", "G", "T", "P"};
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < std::size(kUnits)) value /= 1000, ++unit;
  char text[32];
  std::snprintf(text, sizeof text, "%.*f %s",
                value < 9.995   ? 2
                : value < 99.95 ? 1
                                : 0,
                value, kUnits[unit]);
  return text;
}

}  // namespace troupe
