#include "actors/supervisor/check_inventory.h"

#include <algorithm>

#include "runtime/limits.h"

namespace troupe {
namespace {

constexpr std::size_t kHostBytesMax = 255;

bool printable(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

Status check_devices(const std::vector<DeviceInventory>& devices) {
  if (devices.empty() || devices.size() > limits::kDevicesPerNodeMax) {
    return invalid_argument("It offers " + std::to_string(devices.size()) +
                            " devices; a worker must have 1 to " +
                            std::to_string(limits::kDevicesPerNodeMax) + ".");
  }
  for (const auto& d : devices) {
    if (d.kind != "cpu" && d.kind != "cuda" && d.kind != "cuda-twin") {
      return invalid_argument(
          "It offers a device that is neither cpu nor cuda; run the same "
          "version of troupe on both.");
    }
    if (d.memory_total == 0 || d.memory_total > kDeviceBytesMax) {
      return invalid_argument("It offers a device of " + std::to_string(d.memory_total) +
                              " bytes of memory, which cannot be; set --device-memory.");
    }
    if (d.threads == 0 || d.threads > limits::kThreadsMax) {
      return invalid_argument("It offers a device of " + std::to_string(d.threads) +
                              " threads, which cannot be; set --threads.");
    }
  }
  return {};
}

}  // namespace

Status check_protocol(ProtocolRange theirs) {
  if (common_protocol(theirs, kProtocol) != 0) return {};
  return refused("It speaks the protocols " + to_string(theirs) + " and this head " +
                 to_string(kProtocol) + "; run the same version of troupe on both.");
}

Status check_inventory(const Join& join) {
  if (join.role != "worker") {
    return invalid_argument(
        "It wants a role that this head does not know; the only one is worker.");
  }
  if (join.host.empty() || join.host.size() > kHostBytesMax || !printable(join.host) ||
      join.pid <= 0 || !printable(join.version) || join.version.size() > kHostBytesMax ||
      join.fabric_address.empty() || join.fabric_address.size() > limits::kNameBytesMax ||
      join.fabric_description.size() > limits::kNameBytesMax) {
    return invalid_argument(
        "Its host name, process id, version or bulk address cannot be; run the "
        "same version of troupe on both.");
  }
  return check_devices(join.devices);
}

}  // namespace troupe
