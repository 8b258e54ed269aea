#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace troupe::sim {

/// A history that breaks a rule because of a decision that is known to be wrong. It is skipped
/// until the decision is mended; the test fails when it no longer breaks the rule, so that it
/// leaves this table.
struct Known {
  std::uint64_t seed;
  std::string_view rule;  ///< how the violation begins
  std::string_view why;
};

/// Of "nothing is lost, whatever happens to the cluster".
inline constexpr std::array<Known, 0> kKnown{};

}  // namespace troupe::sim
