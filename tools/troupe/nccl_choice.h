#pragma once

#include <optional>
#include <vector>

#include "actors/device/device.h"
#include "transport/fabric/fabric.h"
#include "transport/nccl/node.h"

namespace troupe::cli {

/// What rows, outputs and tensor-parallel ranks of these devices go with by NCCL; none unless it is
/// asked for: `auto` leaves them to messages. kRefused: a device is no GPU, whose memory alone NCCL
/// moves.
///
/// For tests, TROUPE_TEST_NCCL names a double of libnccl and the driver, which moves host memory
/// (tests/README.md).
Result<std::optional<nccl::NodeOptions>> choose_nccl(transport::FabricKind kind,
                                                     const std::vector<Device::Options>& devices);

}  // namespace troupe::cli
