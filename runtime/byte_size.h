#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/result.h"

namespace troupe {

/// "512MiB", "80GiB", "1.5GiB" or plain bytes; also KiB, TiB and the decimal KB, MB, GB, TB. Plain
/// bytes under 64 KiB are refused, but 0: who writes 80 means 80GiB.
Result<std::uint64_t> parse_byte_size(std::string_view text);

/// For people: "79.6 GiB".
std::string format_byte_size(std::uint64_t bytes);

}  // namespace troupe
