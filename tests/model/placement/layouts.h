#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "runtime/placement.h"

namespace troupe {

/// Nodes 1, 2, ... with so many devices each.
inline std::vector<DeviceRef> devices_of(const std::vector<int>& per_node) {
  std::vector<DeviceRef> devices;
  for (std::size_t n = 0; n < per_node.size(); ++n) {
    for (int d = 0; d < per_node[n]; ++d)
      devices.push_back({NodeId{static_cast<std::uint32_t>(n + 1)}, static_cast<std::uint32_t>(d)});
  }
  return devices;
}

/// Token counts whose k-th largest is in proportion to 1 / k^exponent, in a random order a layer.
inline std::vector<std::vector<float>> zipf_weights(std::size_t layers, std::size_t experts,
                                                    double exponent, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::vector<float>> weights;
  for (std::size_t l = 0; l < layers; ++l) {
    std::vector<float> row;
    for (std::size_t e = 0; e < experts; ++e)
      row.push_back(
          static_cast<float>(std::floor(1e6 / std::pow(static_cast<double>(e + 1), exponent))));
    // Written out: the library's shuffle differs between libraries.
    for (std::size_t e = experts; e > 1; --e) std::swap(row[e - 1], row[random() % e]);
    weights.push_back(std::move(row));
  }
  return weights;
}

}  // namespace troupe
