#include "runtime/ids.h"

namespace troupe {

std::string_view to_string(ActorKind kind) {
  switch (kind) {
    case ActorKind::kNone: return "none";
    case ActorKind::kSupervisor: return "supervisor";
    case ActorKind::kRouter: return "router";
    case ActorKind::kGateway: return "gateway";
    case ActorKind::kNodeAgent: return "agent";
    case ActorKind::kDevice: return "device";
    case ActorKind::kReplica: return "replica";
    case ActorKind::kLayerShard: return "shard";
    case ActorKind::kExpertGroup: return "experts";
    case ActorKind::kClient: return "client";
    case ActorKind::kRank: return "rank";
    case ActorKind::kStandby: return "standby";
  }
  return "unknown";
}

std::string to_string(NodeId node) {
  return node == kHeadNode ? "head" : "node-" + std::to_string(node.value);
}

std::string to_string(const DeviceRef& device) {
  return to_string(device.node) + "/" + std::to_string(device.index);
}

std::string to_string(const Address& address) {
  return to_string(address.node) + "#" + std::to_string(address.incarnation.value) + "/" +
         std::string(to_string(address.actor.kind)) + "-" + std::to_string(address.actor.index);
}

}  // namespace troupe
