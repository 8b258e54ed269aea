#pragma once

#include <string>
#include <string_view>

#include "runtime/result.h"

namespace troupe {

/// "3.0TB/s", "50GB/s" or "400Gbit/s" as bytes a second. Errors are kInvalidArgument, begin with
/// `flag`, and say what to write; what no machine does is one too.
Result<double> parse_bandwidth(std::string_view flag, std::string_view text);
/// "800TFLOP/s" (or TFLOPS) as operations a second.
Result<double> parse_compute(std::string_view flag, std::string_view text);

/// Three digits, decimal units: "3.35 TB", "989 G".
std::string decimal(double value);

}  // namespace troupe
