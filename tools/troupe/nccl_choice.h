#pragma once

#include <optional>
#include <string>
#include <vector>

#include "actors/device/device.h"
#include "transport/fabric/fabric.h"
#include "transport/nccl/node.h"

namespace troupe::cli {

/// What rows, outputs and tensor-parallel ranks of these devices go with by NCCL; none unless it is
/// asked for: `auto` leaves them to messages. kRefused: a device is no GPU, whose memory alone NCCL
/// moves.
///
/// `library`: in the place of libnccl and the driver, for any device's memory (Doubles::nccl).
Result<std::optional<nccl::NodeOptions>> choose_nccl(transport::FabricKind kind,
                                                     const std::vector<Device::Options>& devices,
                                                     const std::string& library);

}  // namespace troupe::cli
