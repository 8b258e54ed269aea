#include "model/placement/route_peers.h"

#include <doctest/doctest.h>

namespace troupe {
namespace {

constexpr NodeId kA{1}, kB{2}, kC{3}, kD{4}, kE{5}, kF{6};

/// Replica 0 of three stages on A, B, C; replica 1 of one on D; experts of a layer of B on E, F.
Placement three_stages() {
  Placement placement;
  placement.replicas = {{0, kA, 10}, {1, kD, 10}};
  placement.shards = {{0, 0, 0, 0, 0, {kA, 0}},
                      {0, 1, 0, 1, 1, {kB, 0}},
                      {0, 2, 0, 2, 2, {kC, 0}},
                      {1, 0, 0, 0, 2, {kD, 0}}};
  placement.experts = {{1, {{0, {kE, 0}}, {1, {kF, 1}}, {1, {kB, 0}}}}};
  return placement;
}

TEST_CASE("only those that routes use are peers") {
  const Placement placement = three_stages();
  using Nodes = std::set<NodeId>;
  CHECK(route_peers(placement, kA) == Nodes{kB, kC});              // its shards
  CHECK(route_peers(placement, kB) == Nodes{kA, kC, kD, kE, kF});  // and D asks its expert
  CHECK(route_peers(placement, kC) == Nodes{kA, kB});
  CHECK(route_peers(placement, kD) == Nodes{kB, kE, kF});
  CHECK(route_peers(placement, kE) == Nodes{kB, kD});
  CHECK(route_peers(placement, NodeId{9}).empty());
}

TEST_CASE("ranks of a stage are peers, and each rank of the next stage's") {
  Placement placement;
  placement.replicas = {{0, kA, 10}};
  placement.shards = {{0, 0, 0, 0, 0, {kA, 0}}, {0, 0, 1, 0, 0, {kB, 0}}, {0, 1, 0, 1, 1, {kC, 0}},
                      {0, 1, 1, 1, 1, {kD, 0}}, {0, 2, 0, 2, 2, {kE, 0}}, {0, 2, 1, 2, 2, {kF, 0}}};
  using Nodes = std::set<NodeId>;
  CHECK(route_peers(placement, kA) == Nodes{kB, kC, kD, kE, kF});  // the replica's node
  CHECK(route_peers(placement, kB) == Nodes{kA, kD});
  CHECK(route_peers(placement, kC) == Nodes{kA, kD, kE});
  CHECK(route_peers(placement, kD) == Nodes{kA, kB, kC, kF});
  CHECK(route_peers(placement, kF) == Nodes{kA, kD, kE});
}

TEST_CASE("peers are mutual") {
  const Placement placement = three_stages();
  for (const NodeId a : {kA, kB, kC, kD, kE, kF})
    for (const NodeId b : {kA, kB, kC, kD, kE, kF})
      CHECK(route_peers(placement, a).contains(b) == route_peers(placement, b).contains(a));
}

}  // namespace
}  // namespace troupe
