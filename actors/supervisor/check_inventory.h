#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/result.h"
#include "transport/message.h"

namespace troupe {

/// What a device may say of its memory, in bytes.
inline constexpr std::uint64_t kDeviceBytesMax = 1ull << 50;

/// Whether the peer speaks a protocol that this head does.
Status check_protocol(ProtocolRange theirs);

/// Whether what a worker says of itself can be: role, host, process, devices.
Status check_inventory(const Join& join);

}  // namespace troupe
