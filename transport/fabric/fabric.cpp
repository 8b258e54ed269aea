#include "transport/fabric/fabric.h"

#include <algorithm>
#include <utility>

namespace troupe::transport {
namespace {

constexpr std::array<std::pair<FabricKind, std::string_view>, 7> kKinds = {{
    {FabricKind::kAuto, "auto"},
    {FabricKind::kNet, "net"},
    {FabricKind::kTcp, "tcp"},
    {FabricKind::kShm, "shm"},
    {FabricKind::kVerbs, "verbs"},
    {FabricKind::kEfa, "efa"},
    {FabricKind::kNccl, "nccl"},
}};

}  // namespace

std::string to_string(const PeerKey& key) {
  return to_string(key.node) + "#" + std::to_string(key.incarnation.value);
}

std::string_view to_string(FabricKind kind) {
  for (const auto& [k, name] : kKinds) {
    if (k == kind) return name;
  }
  return "unknown";
}

Result<FabricKind> parse_fabric_kind(std::string_view text) {
  for (const auto& [kind, name] : kKinds) {
    if (name == text) return kind;
  }
  return invalid_argument("There is no fabric '" + std::string(text) +
                          "'; choose auto, net, tcp, shm, verbs, efa or nccl.");
}

}  // namespace troupe::transport
