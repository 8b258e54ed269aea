#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "model/cost/device_speed.h"
#include "runtime/result.h"

namespace troupe {

/// A machine's speeds as a file: what `troupe plan --measure --json` prints as "measured", or made
/// by hand.
struct MeasuredDevice {
  std::string device = "cpu";  ///< of devices with that name; "cpu": of those without one
  DeviceSpeed device_speed;
};

/// One object, or an object that has it as "measured". `where` names the file in errors.
Result<MeasuredDevice> parse_measured(const std::string& text, const std::string& where);
nlohmann::ordered_json to_json(const MeasuredDevice& measured);

}  // namespace troupe
