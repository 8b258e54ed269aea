#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace troupe {

/// How a device is, as far as its driver tells; of a CPU nothing is known.
struct DeviceHealth {
  std::optional<float> utilization;          ///< [0, 1] of the last second
  std::optional<std::uint32_t> temperature_c;
  std::optional<std::uint64_t> ecc_errors;  ///< not corrected, since the driver was loaded
  std::string throttled = {};  ///< why its clock is lower than it might be; empty: it is not
  bool operator==(const DeviceHealth&) const = default;
};

}  // namespace troupe
