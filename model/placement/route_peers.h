#pragma once

#include <set>

#include "runtime/placement.h"

namespace troupe {

/// The nodes that a node exchanges step traffic with under a placement: a replica's node and those
/// of its shards, a stage and the next, a shard's node and those with a copy of an expert of its
/// layers. Mutual, and never the node itself.
std::set<NodeId> route_peers(const Placement& placement, NodeId node);

}  // namespace troupe
