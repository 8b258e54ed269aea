#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "runtime/placement.h"

namespace troupe {

struct EvenOutInput {
  LayerExperts current;            ///< may name devices that are gone
  std::int32_t num_experts = 0;    ///< of the layer
  std::int32_t copies = 0;         ///< all experts together; at least num_experts
  std::vector<DeviceRef> devices;  ///< those that may hold something
  std::vector<float> load;         ///< tokens by expert; empty: even
  /// Copies that each of `devices` may have at most; empty: no bound.
  std::map<DeviceRef, std::size_t> most;
};

/// Keeps a layer's copies where they are as far as it can be: gives every expert a copy, brings the
/// copies to their number (the busiest experts get the further ones, copies that are too many go),
/// and moves single copies from the fullest device to the emptiest until every device has the floor
/// or the ceiling of copies / devices, or the most that it may have. No device gets an expert
/// twice; further copies go to another node where there is one. `totals` are the slots of each
/// device over all layers so far, and are brought up to date: of devices that are equal in this
/// layer the one with fewer is filled first.
LayerExperts even_out(const EvenOutInput& input, std::map<DeviceRef, std::size_t>& totals);

}  // namespace troupe
