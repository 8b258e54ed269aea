#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/placement/plan_placement.h"
#include "runtime/result.h"

namespace troupe {

/// Nodes that are alike.
struct NodeGroup {
  std::int64_t nodes = 1;
  std::int64_t devices = 1;  ///< of each node
  std::uint64_t memory = 0;  ///< of each device, bytes
  std::string device;        ///< a known name, such as "h100-80g"; empty: any with that memory
  bool operator==(const NodeGroup&) const = default;
};

/// "4:64GiB" is four nodes of one device of 64 GiB, "2x8:h100-80g" two of eight H100; several
/// groups are separated by commas. Errors are kInvalidArgument and name the part.
Result<std::vector<NodeGroup>> parse_nodes(std::string_view text);
/// Back again: "2x8:h100-80g".
std::string to_string(const std::vector<NodeGroup>& groups);

std::int64_t node_count(const std::vector<NodeGroup>& groups);
/// Nodes count from 1, as the head counts workers. A device with a name is no CPU, whose memory
/// others share.
std::vector<PlacementDevice> devices_of(const std::vector<NodeGroup>& groups);

/// Devices that one question may have: larger plans take minutes.
inline constexpr std::int64_t kPlanDevicesMax = 4096;
/// Typing errors rather than devices: 81559 for 81559MiB, and what nobody builds.
inline constexpr std::uint64_t kDeviceBytesMin = 1ull << 20;
inline constexpr std::uint64_t kDeviceBytesMax = 1ull << 50;

/// As flags take it, nothing rounded: "64GiB", "1500MiB", "1234567B".
std::string exact_byte_size(std::uint64_t bytes);

}  // namespace troupe
