#include "model/placement/route_peers.h"

#include <map>

namespace troupe {
namespace {

/// Who of a replica talks to whom: its node to all, the ranks of a stage to each other, and each
/// rank to that of the next stage.
void add_replica_peers(const Placement& placement, NodeId node, std::set<NodeId>& peers) {
  std::map<std::uint32_t, NodeId> homes;
  for (const auto& replica : placement.replicas) homes[replica.id] = replica.node;
  const auto link = [&](NodeId a, NodeId b) {
    if (a == node) peers.insert(b);
    if (b == node) peers.insert(a);
  };
  const auto& shards = placement.shards;
  for (std::size_t i = 0; i < shards.size(); ++i) {  // by (replica, stage, tp_rank)
    const ShardPlacement& shard = shards[i];
    if (const auto home = homes.find(shard.replica); home != homes.end())
      link(home->second, shard.device.node);
    for (std::size_t j = i + 1; j < shards.size(); ++j) {
      const ShardPlacement& other = shards[j];
      if (other.replica != shard.replica || other.stage > shard.stage + 1) break;
      if (other.stage == shard.stage || other.tp_rank == shard.tp_rank)
        link(shard.device.node, other.device.node);
    }
  }
}

void add_expert_peers(const Placement& placement, NodeId node, std::set<NodeId>& peers) {
  for (const auto& layer : placement.experts) {
    std::set<NodeId> askers;
    for (const auto& shard : placement.shards)
      if (shard.first_layer <= layer.layer && layer.layer <= shard.last_layer)
        askers.insert(shard.device.node);
    const bool asks = askers.contains(node);
    for (const auto& slot : layer.slots) {
      if (asks) peers.insert(slot.device.node);
      if (slot.device.node == node) peers.insert(askers.begin(), askers.end());
    }
  }
}

}  // namespace

std::set<NodeId> route_peers(const Placement& placement, NodeId node) {
  std::set<NodeId> peers;
  add_replica_peers(placement, node, peers);
  add_expert_peers(placement, node, peers);
  peers.erase(node);
  return peers;
}

}  // namespace troupe
