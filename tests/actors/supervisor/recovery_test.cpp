#include <doctest/doctest.h>

#include <algorithm>

#include "actors/supervisor/times.h"
#include "tests/actors/supervisor/cluster_fixture.h"

// What the Supervisor does about losses, joins, drains and load, message by message.

namespace troupe {
namespace {

using namespace testing;

TEST_CASE("a worker is lost: its peers are told, its replica too, and the rest serves on") {
  auto o = options();
  o.engine.redundant_experts = 4;  // every expert twice
  Cluster c(2, o);
  REQUIRE(c.routes.replicas.size() == 2);
  const std::uint32_t other = c.routes.replicas[0].address.node == NodeId{1}
                                  ? c.routes.replicas[0].id
                                  : c.routes.replicas[1].id;
  const auto incarnation = c.workers.at(2).incarnation;
  c.kill(2);
  const auto told = c.sent<MemberLost>();
  REQUIRE(told);
  CHECK(told->node == NodeId{2});
  CHECK(told->incarnation == incarnation);
  CHECK(c.sent<ForgetPrefixes>());  // what it computed last was never proven
  REQUIRE(c.lost);
  CHECK(c.lost->replicas.size() == 1);
  CHECK(contains(c.lost->why, "node-2 is lost"));
  REQUIRE(c.routes.replicas.size() == 1);
  CHECK(c.routes.replicas[0].id == other);  // it goes on as it is
  CHECK(c.s.state() == ClusterState::kReady);
  CHECK(c.loads == 2);  // nothing to be loaded: the copies are there
  c.pass(2s);
  CHECK(c.slots_on(NodeId{1}) == 4);
}

TEST_CASE("experts without another copy are loaded at once, nothing else is") {
  Cluster c(3);
  c.loads = 0;
  c.kill(3);
  CHECK(c.s.state() == ClusterState::kLoading);
  REQUIRE(c.sent<Load>());
  const Placement next = c.sent<Load>()->placement;
  // The replicas that live keep their names and places.
  CHECK(next.replicas.size() == 2);
  for (const auto& replica : next.replicas)
    CHECK(std::count(c.s.active()->replicas.begin(), c.s.active()->replicas.end(), replica) == 1);
  CHECK(c.admission.waits);  // requests wait meanwhile
  c.settle();
  CHECK(c.s.state() == ClusterState::kReady);
  CHECK(c.says("recovered"));
  CHECK(c.slots_on(NodeId{1}) + c.slots_on(NodeId{2}) == 4);
}

TEST_CASE(
    "too few are left: requests wait a while, then are refused, and a worker is used at once") {
  auto o = options();
  o.engine.pipeline_parallel_size = 2;
  o.engine.data_parallel_size = 1;
  Head alone(o);
  Cluster c(2, [&] {
    auto small = o;
    small.costs = [](Numerics) {
      ModelCosts m;
      m.layers = {{40 * kMiB, false}, {40 * kMiB, true}};
      m.num_experts = 4;
      m.expert_bytes = 1000;
      m.kv_bytes_per_token_layer = 8;
      return m;
    };
    return small;
  }());
  c.kill(2);
  CHECK(c.s.state() == ClusterState::kDegraded);
  CHECK(contains(c.s.message(), "bytes"));
  CHECK(c.admission.waits);
  c.pass(kPatience + 1s);
  CHECK(!c.admission.waits);
  CHECK(contains(c.admission.why, "degraded"));
  c.add(3);
  CHECK(c.s.state() == ClusterState::kLoading);
  CHECK(c.admission.waits);
  c.settle();
  CHECK(c.s.state() == ClusterState::kReady);
}

TEST_CASE("all are lost, one comes back") {
  Cluster c(2);
  c.kill(1);
  c.kill(2);
  CHECK(c.s.state() == ClusterState::kDegraded);
  CHECK(c.lost->replicas.size() == 1);
  c.add(3);
  c.settle();
  CHECK(c.s.state() == ClusterState::kReady);
  CHECK(c.routes.replicas.size() == 1);
  CHECK(c.slots_on(c.workers.at(3).node) == 4);
}

TEST_CASE("a worker that joins gets experts and a replica while the others serve") {
  Cluster c(1);
  const auto before = c.routes.replicas[0];
  const Address added = c.add(2);
  CHECK(!c.sent<Load>());  // changes come in bursts
  c.pass(1s);
  CHECK(c.s.state() == ClusterState::kReady);
  CHECK(c.slots_on(added.node) == 2);
  REQUIRE(c.routes.replicas.size() == 2);
  CHECK(std::count(c.routes.replicas.begin(), c.routes.replicas.end(), before) == 1);
  CHECK(!c.lost);
  CHECK(c.s.members().at(added.node).state == MemberState::kReady);
}

TEST_CASE("a loss while a version loads") {
  Cluster c(3);
  c.frozen = true;
  c.kill(3);
  const auto first = c.s.pending()->version;
  c.settle();
  REQUIRE(c.s.pending());
  c.kill(2);
  REQUIRE(c.s.pending());
  CHECK(c.s.pending()->version > first);
  c.frozen = false;
  c.settle();
  CHECK(c.s.state() == ClusterState::kReady);
  CHECK(c.slots_on(NodeId{1}) == 4);
}

TEST_CASE("drain: everything moves, then the node is told to end") {
  Cluster c(2);
  SUBCASE("and says that it leaves") {}
  SUBCASE("and its connection ends before its word arrives") { c.breaks_off = true; }
  c.up(9);
  c.from_session(9, ClientHello{kProtocol, "drain"});
  c.from_session(9, DrainQuery{1, NodeId{2}});
  c.note();
  REQUIRE(c.sent<OperationProgress>());
  CHECK(!c.sent<OperationProgress>()->finished);
  c.from_session(9, DrainQuery{2, NodeId{2}});
  REQUIRE(c.sent<OperationProgress>());
  CHECK(contains(c.sent<OperationProgress>()->error->message, "already"));
  c.from_session(9, DrainQuery{3, NodeId{1}});
  CHECK(contains(c.sent<OperationProgress>()->error->message, "last worker"));
  c.from_session(9, DrainQuery{4, NodeId{7}});
  CHECK(contains(c.sent<OperationProgress>()->error->message, "no node-7"));
  bool finished = false;
  for (int i = 0; i < 30 && !finished; ++i) {
    c.settle();
    c.pass(100ms);
    for (const auto& event : c.s.events()) finished = finished || event.kind == "node_left";
  }
  CHECK(finished);
  CHECK(c.stopped == std::vector<NodeId>{NodeId{2}});
  CHECK(c.s.state() == ClusterState::kReady);
  CHECK(!c.lost);
  CHECK(c.slots_on(NodeId{1}) == 4);
  CHECK(c.routes.replicas.size() == 1);
}

TEST_CASE("a drain goes on beside a rebalance that has nothing to gain") {
  Cluster c(2);
  c.add(3);
  c.wait(kGoalDelay + 10ms);
  c.note();
  REQUIRE(c.s.pending());
  c.up(9);
  c.from_session(9, ClientHello{kProtocol, "both"});
  c.from_session(9, RebalanceQuery{1});
  c.note();
  c.from_session(9, DrainQuery{2, NodeId{2}});
  c.note();
  for (int i = 0; i < 30; ++i) {
    c.settle();
    c.pass(100ms);
  }
  CHECK(c.slots_on(NodeId{2}) == 0);
  CHECK(c.stopped == std::vector<NodeId>{NodeId{2}});
}

TEST_CASE("a drain that does not fit is called off, and the node serves on") {
  auto o = options();
  o.costs = [](Numerics) {
    ModelCosts m;
    m.layers = {{kMiB, false}, {kMiB, true}};
    m.num_experts = 4;
    m.expert_bytes = 20 * kMiB;
    m.kv_bytes_per_token_layer = 8;
    return m;
  };
  Cluster c(2, o);
  c.pass(1s);
  c.up(9);
  c.from_session(9, ClientHello{kProtocol, "drain"});
  c.from_session(9, DrainQuery{1, NodeId{2}});
  const auto news = c.sends<OperationProgress>();
  REQUIRE(!news.empty());
  const std::optional<OperationProgress> end = news.back();
  CHECK(end->finished);
  REQUIRE(end->error);
  CHECK(contains(end->error->message, "bytes"));
  CHECK(c.s.members().at(NodeId{2}).state == MemberState::kReady);
  CHECK(c.s.state() == ClusterState::kReady);
}

TEST_CASE("a device fails: it is taken out, its node stays") {
  Cluster c(2);
  const std::size_t replicas = c.s.active()->replicas.size();
  c.from(c.workers.at(2), Renew{++c.sequence, {{0, 0, 0, "ECC error"}}, {}});
  CHECK(c.sends<ForgetPrefixes>().size() == replicas);  // it may have computed otherwise before
  REQUIRE(c.router_hears<PrefixesForgotten>());
  CHECK(c.router_hears<PrefixesForgotten>()->replicas.size() == replicas);
  c.note();
  c.failed.insert(2);
  CHECK(c.says("device_failed"));
  CHECK(c.s.members().size() == 2);
  c.settle();
  c.pass(1s);
  CHECK(c.s.state() == ClusterState::kReady);
  CHECK(c.slots_on(NodeId{1}) == 4);
}

TEST_CASE("a pair that cannot reach each other connects again, then one is fenced for a while") {
  Cluster c(3);
  const Address a = c.workers.at(1), b = c.workers.at(3);
  c.from(a, PeerUnreachable{b.node, b.incarnation, "reset"});
  CHECK(c.count_sent<Connect>() == 2);
  c.from(b, PeerUnreachable{a.node, a.incarnation, "reset"});  // the same break
  CHECK(c.count_sent<Connect>() == 0);
  CHECK(c.s.members().size() == 3);
  SUBCASE("the new connection stands: much later it breaks again") {
    c.pass(20s);
    c.from(a, PeerUnreachable{b.node, b.incarnation, "reset"});
    CHECK(c.count_sent<Connect>() == 2);
    CHECK(c.s.members().size() == 3);
  }
  SUBCASE("it does not") {
    c.from(a, PeerUnreachable{b.node, b.incarnation, "no route"});
    c.note();
    CHECK(c.s.members().size() == 2);
    std::erase_if(c.workers, [&](const auto& w) { return !c.s.members().contains(w.second.node); });
    c.settle();
    CHECK(c.s.state() == ClusterState::kReady);
    const NodeId fenced = c.s.gone().back().id;
    Join again = good_join(107);
    again.held_id = fenced;
    again.held_cluster = "c1";
    c.add(7, again);
    c.pass(700ms);
    CHECK(c.slots_on(fenced) == 0);
    c.pass(3s);
    CHECK(c.slots_on(fenced) > 0);
  }
}

TEST_CASE("a device that became slow is asked less, then drained, then used again") {
  Cluster c(3);
  c.pass(2s);
  c.probe[2] = 2000;
  bool avoided = false;
  for (int i = 0; i < 100 && !avoided; ++i) {
    c.pass(100ms);
    avoided = c.s.slow({NodeId{2}, 0});
  }
  CHECK(avoided);
  CHECK(std::count_if(c.routes.replicas.begin(), c.routes.replicas.end(),
                      [](const auto& r) { return r.slow; }) == 1);
  c.pass(kSlowDrainAfter + 2s);
  CHECK(c.slots_on(NodeId{2}) == 0);
  CHECK(c.s.members().size() == 3);
  c.probe[2] = 100;
  c.pass(5s);
  CHECK(c.slots_on(NodeId{2}) > 0);
}

TEST_CASE("experts follow the load when asked to") {
  auto o = options();
  o.engine.redundant_experts = 2;
  Cluster c(2, o);
  c.pass(1s);
  c.from(c.workers.at(1), ExpertCounts{{{1, {10, 10, 10, 100'000}}}});
  c.up(9);
  c.from_session(9, ClientHello{kProtocol, "rebalance"});
  c.from_session(9, RebalanceQuery{5});
  c.note();
  c.settle();
  c.pass(1s);
  const auto& slots = c.s.active()->experts[0].slots;
  CHECK(slots.size() == 6);
  CHECK(std::count_if(slots.begin(), slots.end(), [](const auto& s) { return s.expert == 3; }) ==
        2);
  CHECK(c.s.last_rebalance());
  CHECK(!c.lost);
}

TEST_CASE("a restarted head uses what its workers hold") {
  auto o = options();
  o.engine.min_devices = 2;
  Head h(o);
  Join first = good_join(1), second = good_join(2);
  first.held_shards = {{0, 1}};
  first.held_experts = {{1, {2, 3}}};
  second.held_experts = {{1, {0, 1, 4000}}};  // no such expert
  const auto a = h.join(1, first);
  const auto b = h.join(2, second);
  const auto load = h.sent<Load>();
  REQUIRE(load);
  for (const auto& slot : load->placement.experts[0].slots)
    CHECK(slot.device.node == (slot.expert >= 2 ? a->node : b->node));
  CHECK(load->placement.shards[0].device.node == a->node);
}

}  // namespace
}  // namespace troupe
