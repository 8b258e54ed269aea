#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/troupe/plan/speed.h"

namespace troupe {

/// For people: a table, what sets the pace, and what would help.
std::string speed_text(const FitQuestion& question, const SpeedQuestion& speed,
                       const SpeedAnswer& answer);
/// For programs: bytes, operations and seconds. `troupe plan --help` lists the fields.
nlohmann::ordered_json speed_json(const FitQuestion& question, const SpeedQuestion& speed,
                                  const SpeedAnswer& answer);

}  // namespace troupe
