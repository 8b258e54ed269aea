#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "tools/troupe/bench/compare.h"

/// Whatever a result file says, it can be compared with itself, and nothing of it that a terminal
/// would obey is printed.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe::bench;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  auto points = parse_results(text, "file");
  if (!points.ok()) return 0;
  const NamedResults results{"file", std::move(*points)};
  const auto both = compare(results, results);
  if (!both.ok() || both->points.size() != results.points.size() || !both->settings.empty())
    __builtin_trap();
  for (const char c : comparison_text(*both))
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n') __builtin_trap();
  (void)comparison_json(*both).dump();
  return 0;
}
