#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "model/cost/device_speed.h"

namespace troupe {

/// A device that is sold under a name.
struct DeviceKind {
  std::string_view name;
  std::uint64_t memory_mib = 0;  ///< what the vendors' tools report as its whole memory
  Ceilings ceilings;             ///< by its data sheet, dense
};

/// Null: no kind has that name.
const DeviceKind* find_device_kind(std::string_view name);
/// "a10-24g, l4-24g, ...".
std::string known_device_kinds();
/// The known name that begins so, or else takes the fewest single-character edits.
std::string nearest_device_kind(std::string_view name);

}  // namespace troupe
