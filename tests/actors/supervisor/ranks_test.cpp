#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tests/actors/supervisor/cluster_fixture.h"

// Replicas whose stages have several tensor-parallel ranks.

namespace troupe {
namespace {

using namespace testing;

SupervisorOptions ranks(std::int32_t size) {
  SupervisorOptions o = options();
  o.engine.tensor_parallel_size = size;
  return o;
}

/// The nodes of all shards in order.
std::vector<std::uint32_t> nodes_of(const Placement& placement) {
  std::vector<std::uint32_t> nodes;
  for (const auto& shard : placement.shards) nodes.push_back(shard.device.node.value);
  return nodes;
}
using Nodes = std::vector<std::uint32_t>;

TEST_CASE("a replica has a rank on each of several nodes, and the status says which") {
  Cluster c(4, ranks(2));
  CHECK(nodes_of(*c.s.active()) == Nodes{1, 2, 3, 4});
  CHECK(c.routes.replicas.size() == 2);
  const auto j = nlohmann::json::parse(status_json(c.s, {}, c.now));
  REQUIRE(j["replicas"].size() == 2);
  const auto& shards = j["replicas"][1]["shards"];
  REQUIRE(shards.size() == 2);
  for (int rank = 0; rank < 2; ++rank) {
    const auto& shard = shards[static_cast<std::size_t>(rank)];
    CHECK(shard["layers"] == nlohmann::json({0, 1}));
    CHECK(shard["tp_rank"] == rank);
    CHECK(shard["device"] == "node-" + std::to_string(3 + rank) + "/0");
  }
}

TEST_CASE("all ranks share the only device") {
  Cluster c(1, ranks(8));
  CHECK(nodes_of(*c.s.active()) == Nodes(8, 1));
  CHECK(c.routes.replicas.size() == 1);
}

TEST_CASE("the node of a later rank is lost: its replica goes, and comes back on what is left") {
  Cluster c(4, ranks(2));
  const std::uint32_t other = c.s.active()->replicas[0].id, ends = c.s.active()->replicas[1].id;
  REQUIRE(c.s.active()->replicas[1].node == NodeId{3});
  c.kill(4);
  REQUIRE(c.lost);
  CHECK(c.lost->replicas == std::vector{ends});
  REQUIRE(c.routes.replicas.size() == 1);
  CHECK(c.routes.replicas[0].id == other);
  CHECK(nodes_of(*c.s.active()) == Nodes{1, 2});
  bool told = false;
  for (const auto& event : c.s.events())
    told = told || contains(event.text, "node-4 had layers 0-1, rank 1 of 2, of replica 1");
  CHECK(told);
  c.settle();
  c.pass(3s);
  CHECK(nodes_of(*c.s.active()) == Nodes{1, 2});  // one device is left over
  c.add(5);
  c.settle();
  c.pass(3s);
  CHECK(nodes_of(*c.s.active()) == Nodes{1, 2, 3, 5});
  CHECK(c.routes.replicas.size() == 2);
  CHECK(c.routes.replicas[0].id == other);
}

TEST_CASE(
    "the only replica loses a rank: it is planned as a whole, two ranks on a device if need") {
  Cluster c(3, ranks(2));
  REQUIRE(nodes_of(*c.s.active()) == Nodes{1, 2});
  c.kill(1);
  c.settle();
  CHECK(c.s.state() == ClusterState::kReady);
  CHECK(nodes_of(*c.s.active()) == Nodes{2, 3});
  c.kill(3);
  c.settle();
  CHECK(c.s.state() == ClusterState::kReady);
  CHECK(nodes_of(*c.s.active()) == Nodes{2, 2});
}

TEST_CASE("two ranks that cannot reach each other: they connect again, then one of them goes") {
  SupervisorOptions o = ranks(2);
  o.costs = [](Numerics) {
    ModelCosts m;  // without experts nothing else connects them
    m.layers = {{kMiB, false}, {kMiB, false}};
    m.kv_bytes_per_token_layer = 8;
    return m;
  };
  Cluster c(3, o);
  REQUIRE(nodes_of(*c.s.active()) == Nodes{1, 2});
  const Address first = c.workers.at(1), second = c.workers.at(2), third = c.workers.at(3);
  c.from(second, PeerUnreachable{third.node, third.incarnation, "reset"});
  CHECK(c.count_sent<Connect>() == 0);  // no route leads there
  c.from(second, PeerUnreachable{first.node, first.incarnation, "reset"});
  CHECK(c.count_sent<Connect>() == 2);
  c.from(second, PeerUnreachable{first.node, first.incarnation, "reset"});
  c.note();
  CHECK(c.s.members().contains(first.node) != c.s.members().contains(second.node));
  std::erase_if(c.workers, [&](const auto& w) { return !c.s.members().contains(w.second.node); });
  c.settle();
  CHECK(c.s.state() == ClusterState::kReady);
  CHECK(c.s.active()->shards.at(1).device.node == NodeId{3});
}

TEST_CASE("a restarted head gives ranks to the nodes that hold them") {
  SupervisorOptions o = ranks(2);
  o.engine.min_devices = 3;
  Head h(o);
  Join first = good_join(1), second = good_join(2), third = good_join(3);
  first.held_shards = {{0, 1, {1, 2}}};
  second.held_shards = {{0, 1, {1, 4}}};  // of another split
  third.held_shards = {{0, 1, {0, 2}}};
  (void)h.join(1, first);
  (void)h.join(2, second);
  (void)h.join(3, third);
  const auto load = h.sent<Load>();
  REQUIRE(load);
  CHECK(nodes_of(load->placement) == Nodes{3, 1});
}

}  // namespace
}  // namespace troupe
