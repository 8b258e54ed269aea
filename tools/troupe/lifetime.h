#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/result.h"

namespace troupe::cli {

/// "90s", "30m", "24h", "7d" as seconds; none: "never". Up to ten years. kInvalidArgument names the
/// flag.
Result<std::optional<std::int64_t>> parse_lifetime(const std::string& flag, std::string_view text);

/// --certificate-lifetime; kInvalidArgument: also for "never", and for less than 5 s.
Result<std::int64_t> parse_certificate_lifetime(std::string_view text);

/// "2026-11-26 20:59:29", by this machine's time zone.
std::string local_time_text(std::int64_t unix_s);

}  // namespace troupe::cli
