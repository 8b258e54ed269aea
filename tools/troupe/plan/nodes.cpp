#include "tools/troupe/plan/nodes.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <utility>

#include "runtime/byte_size.h"
#include "runtime/limits.h"
#include "tools/troupe/plan/device_kinds.h"

namespace troupe {
namespace {

std::optional<std::int64_t> parse_count(std::string_view text) {
  std::int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return count;
}

/// "2x8" before the colon.
Status parse_counts(std::string_view text, const std::string& where, NodeGroup& group) {
  const auto cross = text.find('x');
  const auto nodes = parse_count(text.substr(0, cross));
  const auto devices = cross == std::string_view::npos ? std::optional<std::int64_t>(1)
                                                       : parse_count(text.substr(cross + 1));
  if (!nodes || !devices)
    return invalid_argument(where + "'" + std::string(text) +
                            "' is no number of nodes; write 4, or 2x8 for two nodes of eight "
                            "devices.");
  const auto most = static_cast<std::int64_t>(limits::kNodesMax);
  if (*nodes < 1 || *nodes > most)
    return invalid_argument(where + "there can be 1 to " + std::to_string(most) + " nodes, not " +
                            std::to_string(*nodes) + ".");
  const auto devices_most = static_cast<std::int64_t>(limits::kDevicesPerNodeMax);
  if (*devices < 1 || *devices > devices_most)
    return invalid_argument(where + "a node can have 1 to " + std::to_string(devices_most) +
                            " devices, not " + std::to_string(*devices) + ".");
  group.nodes = *nodes;
  group.devices = *devices;
  return {};
}

Status parse_device(std::string_view text, const std::string& where, NodeGroup& group) {
  if (const DeviceKind* kind = find_device_kind(text)) {
    group.device = kind->name;
    group.memory = kind->memory_mib << 20;
    return {};
  }
  const auto bytes = parse_byte_size(text);
  if (!bytes.ok()) {
    const bool named = !text.empty() && std::isalpha(static_cast<unsigned char>(text[0])) != 0;
    if (named)
      return invalid_argument(where + "no device is known as '" + std::string(text.substr(0, 32)) +
                              "'; did you mean '" + nearest_device_kind(text.substr(0, 32)) +
                              "'? Devices with a name are " + known_device_kinds() +
                              "; of others say the memory, such as 64GiB.");
    return invalid_argument(where + bytes.error().message + " Devices with a name are " +
                            known_device_kinds() + ".");
  }
  if (*bytes == 0) return invalid_argument(where + "a device needs memory, and this one has none.");
  if (*bytes < kDeviceBytesMin || *bytes > kDeviceBytesMax)
    return invalid_argument(where + "no device has " + format_byte_size(*bytes) + " of memory.");
  group.memory = *bytes;
  return {};
}

}  // namespace

Result<std::vector<NodeGroup>> parse_nodes(std::string_view text) {
  std::vector<NodeGroup> groups;
  std::int64_t devices = 0;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string part(text.substr(at, end - at));
    at = end + 1;
    const std::string where = "--nodes, '" + part.substr(0, 64) + "': ";
    const auto colon = part.find(':');
    if (colon == std::string::npos)
      return invalid_argument(where + "write COUNT:MEMORY, such as 4:64GiB or 2x8:h100-80g.");
    NodeGroup group;
    if (Status s = parse_counts(part.substr(0, colon), where, group); !s) return s.error();
    if (Status s = parse_device(part.substr(colon + 1), where, group); !s) return s.error();
    devices += group.nodes * group.devices;
    groups.push_back(std::move(group));
    if (devices > kPlanDevicesMax || groups.size() > limits::kNodesMax)
      return invalid_argument("--nodes: there can be " + std::to_string(kPlanDevicesMax) +
                              " devices at most in one plan.");
  }
  if (node_count(groups) > static_cast<std::int64_t>(limits::kNodesMax))
    return invalid_argument("--nodes: there can be " + std::to_string(limits::kNodesMax) +
                            " nodes at most.");
  return groups;
}

std::string to_string(const std::vector<NodeGroup>& groups) {
  std::string text;
  for (const NodeGroup& g : groups) {
    text += (text.empty() ? "" : ",") + std::to_string(g.nodes);
    if (g.devices > 1) text += "x" + std::to_string(g.devices);
    text += ":" + (g.device.empty() ? exact_byte_size(g.memory) : g.device);
  }
  return text;
}

std::int64_t node_count(const std::vector<NodeGroup>& groups) {
  std::int64_t nodes = 0;
  for (const NodeGroup& g : groups) nodes += g.nodes;
  return nodes;
}

std::vector<PlacementDevice> devices_of(const std::vector<NodeGroup>& groups) {
  std::vector<PlacementDevice> devices;
  std::uint32_t node = 0;
  for (const NodeGroup& g : groups)
    for (std::int64_t n = 0; n < g.nodes; ++n) {
      ++node;
      for (std::int64_t d = 0; d < g.devices; ++d)
        devices.push_back({{NodeId{node}, static_cast<std::uint32_t>(d)},
                           g.device.empty() ? "cpu" : "cuda",
                           g.memory});
    }
  return devices;
}

std::string exact_byte_size(std::uint64_t bytes) {
  constexpr std::pair<int, const char*> kUnits[] = {
      {40, "TiB"}, {30, "GiB"}, {20, "MiB"}, {10, "KiB"}};
  for (const auto& [shift, unit] : kUnits)
    if (bytes >> shift > 0 && (bytes >> shift) << shift == bytes)
      return std::to_string(bytes >> shift) + unit;
  return bytes == 0 ? "0" : std::to_string(bytes) + "B";
}

}  // namespace troupe
