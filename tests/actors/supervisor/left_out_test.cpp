#include <doctest/doctest.h>

#include "actors/supervisor/times.h"
#include "tests/actors/supervisor/cluster_fixture.h"

// Nodes and devices that a plan does without: storage that fails or hangs, devices that hold
// nothing, memory that has to be free first.

namespace troupe {
namespace {

using namespace testing;

SupervisorOptions with_experts_of(std::uint64_t bytes) {
  auto o = options();
  o.costs = [bytes](Numerics) {
    ModelCosts m;
    m.layers = {{kMiB, false}, {kMiB, true}};
    m.num_experts = 4;
    m.expert_bytes = bytes;
    m.kv_bytes_per_token_layer = 8;
    return m;
  };
  return o;
}

Join join_of(int pid, std::uint64_t memory) {
  Join join = good_join(pid);
  join.devices[0].memory_total = memory;
  return join;
}

TEST_CASE("a node whose reads fail is done without at once, and tried again later") {
  Cluster c(3);
  const std::size_t before = c.slots_on(NodeId{2});
  c.denied = {NodeId{2}};
  c.kill(3);
  c.settle();  // no time passes
  CHECK(c.s.state() == ClusterState::kReady);
  CHECK(c.slots_on(NodeId{2}) == before);
  CHECK(c.slots_on(NodeId{1}) + before == 4);
  CHECK(c.says("load_failed"));
  c.pass(kClosedMin - 2s);
  CHECK(c.slots_on(NodeId{2}) == before);
  const auto until = c.s.members().at(NodeId{2}).closed_until;
  CHECK(until - c.now <= kClosedMin);
  c.pass(5s);  // it is open again; what it is given then fails again
  if (const auto& again = c.s.members().at(NodeId{2}); !again.closed_reason.empty())
    CHECK(again.closed_until - c.now > kClosedMin);
  c.denied.clear();
  c.pass(2 * kClosedMin + 5s);
  CHECK(c.s.members().at(NodeId{2}).closed_reason.empty());
  CHECK(c.slots_on(NodeId{1}) == 2);
  CHECK(c.slots_on(NodeId{2}) == 2);
}

TEST_CASE("what keeps out the one that is needed is said, not that there is too little") {
  const auto o = with_experts_of(14 * kMiB);  // two devices hold four experts, or one does
  for (const Error& denial : {unavailable("EACCES"), corrupt("model.safetensors is damaged")}) {
    Cluster c(2, o);
    c.denied = {NodeId{1}};
    c.denial = denial;
    c.kill(2);
    c.settle();
    CHECK(c.s.message().find(denial.message) != std::string::npos);
    c.pass(kClosedMin + 10s);  // it is tried again, and fails again
    CHECK(c.s.message().find(denial.message) != std::string::npos);
    c.denied.clear();
    c.pass(kClosedMax);
    CHECK(c.s.state() == ClusterState::kReady);
  }
  auto forming = with_experts_of(28 * kMiB);  // one does not
  forming.engine.min_devices = 2;
  Cluster c(0, forming);
  c.denied = {NodeId{1}};
  c.denial = corrupt("model.safetensors is damaged");
  c.add(1);
  c.add(2);
  c.settle();
  CHECK(c.s.message().find("damaged") != std::string::npos);
  c.kill(1);
  c.settle();
  CHECK(c.s.message().find("Waiting for devices: 1 of 2") == 0);
}

TEST_CASE("a cluster that begins has room to compute; one that served goes on without") {
  auto o = with_experts_of(14 * kMiB);  // two devices hold four experts, or one does
  o.engine.min_devices = 2;
  std::uint64_t step = 63 * kMiB;
  o.compute = [&step](Numerics, int threads, std::int32_t tokens) {
    CHECK(threads == 2);
    return ComputeCosts{tokens, 2, [&step](std::int32_t, std::int32_t) { return step; },
                        [](std::int64_t) { return std::uint64_t{0}; }};
  };
  Cluster c(0, o);
  c.add(1);
  c.add(2);
  c.settle();
  CHECK(c.s.state() == ClusterState::kDegraded);
  CHECK(c.s.message().find("even steps of 8 tokens") != std::string::npos);
  CHECK(c.s.message().find("; lower --max-model-len or give") != std::string::npos);
  step = 8 * kMiB;
  c.add(3);
  c.settle();
  CHECK(c.s.state() == ClusterState::kReady);
  c.kill(3);
  c.kill(2);
  c.settle();
  CHECK(c.s.state() == ClusterState::kReady);
}

TEST_CASE("a cache holds a whole sequence, or people hear what takes its room") {
  auto o = with_experts_of(kMiB);
  o.engine.max_model_len = 3 << 20;  // 48 MiB
  o.engine.max_num_batched_tokens = 2048;
  std::uint64_t least = 20 * kMiB;
  o.compute = [&least](Numerics, int, std::int32_t tokens) {
    const std::uint64_t bytes = least + static_cast<std::uint64_t>(tokens) * 20 * 1024;
    return ComputeCosts{tokens, 2, [bytes](std::int32_t, std::int32_t) { return bytes; },
                        [](std::int64_t) { return std::uint64_t{0}; }};
  };
  SUBCASE("no step is small enough") {
    Cluster c(0, o);
    c.add(1);
    c.settle();
    CHECK(c.s.state() == ClusterState::kDegraded);
    CHECK(c.s.message().find("; lower --max-model-len or give") != std::string::npos);
    CHECK(!c.s.active());
  }
  SUBCASE("smaller steps leave it that room") {
    least = 0;
    Cluster c(1, o);
    CHECK(c.s.state() == ClusterState::kReady);
    CHECK(c.step_tokens.back() < 1024);
    CHECK(c.s.active()->replicas[0].kv_blocks * o.engine.block_size >= o.engine.max_model_len);
  }
}

TEST_CASE("steps are made smaller where memory to compute with lacks") {
  auto o = with_experts_of(14 * kMiB);
  o.engine.min_devices = 2;
  o.engine.max_num_batched_tokens = 2048;
  o.compute = [](Numerics, int, std::int32_t tokens) {
    const std::uint64_t bytes = static_cast<std::uint64_t>(tokens) * 20 * 1024;
    return ComputeCosts{tokens, 2, [bytes](std::int32_t, std::int32_t) { return bytes; },
                        [](std::int64_t) { return std::uint64_t{0}; }};
  };
  Cluster c(0, o);
  c.add(1);
  c.add(2);
  c.settle();
  CHECK(c.s.state() == ClusterState::kReady);
  REQUIRE(c.step_tokens.size() >= 2);
  for (const std::int32_t tokens : c.step_tokens) CHECK(tokens == 1024);
  CHECK(c.says("placement"));
}

TEST_CASE("a replica that leaves no memory to compute with is not added") {
  auto o = with_experts_of(kMiB);
  o.engine.max_num_batched_tokens = 2048;
  o.compute = [](Numerics, int, std::int32_t tokens) {
    const std::uint64_t bytes = static_cast<std::uint64_t>(tokens) * 20 * 1024;  // 40 MiB
    return ComputeCosts{tokens, 2, [bytes](std::int32_t, std::int32_t) { return bytes; },
                        [](std::int64_t) { return std::uint64_t{0}; }};
  };
  Cluster c(1, o);
  REQUIRE(c.s.active()->replicas.size() == 1);
  c.add(2, join_of(102, 16 * kMiB));
  c.pass(2s);
  CHECK(c.s.state() == ClusterState::kReady);
  for (const auto& shard : c.s.active()->shards) CHECK(shard.device.node == NodeId{1});
  CHECK(c.s.active()->replicas.size() == 1);  // nor beside the one that is there
  CHECK(c.slots_on(NodeId{2}) == 2);
  CHECK(c.says("left_out"));  // and people hear why
  for (const std::int32_t tokens : c.step_tokens) CHECK(tokens == 2048);
  c.add(3);
  c.pass(2s);
  CHECK(c.s.active()->replicas.size() == 2);
}

TEST_CASE("a node that has room for experts only holds them though a replica more is asked for") {
  auto o = with_experts_of(kMiB);
  o.engine.data_parallel_size = 2;
  o.compute = [](Numerics, int, std::int32_t tokens) {
    return ComputeCosts{tokens, 2, [](std::int32_t, std::int32_t) { return 40 * kMiB; },
                        [](std::int64_t) { return std::uint64_t{0}; }};
  };
  Cluster c(2, o);
  REQUIRE(c.s.active()->replicas.size() == 2);
  c.kill(2);
  Join small = join_of(103, 16 * kMiB);
  small.tier_memory = 16 * kMiB;
  const NodeId newcomer = c.add(3, small).node;
  c.pass(2s);
  CHECK(c.s.active()->replicas.size() == 1);
  CHECK(c.slots_on(newcomer) == 2);
  REQUIRE(c.s.active()->tier.size() == 1);
  CHECK(c.s.active()->tier[0].slots.size() == 2);  // of the other node's experts
  CHECK(c.s.members().at(newcomer).state == MemberState::kReady);
  CHECK(c.says("plan"));  // and people hear what keeps the other replica out
  c.add(4);
  c.pass(2s);
  CHECK(c.s.active()->replicas.size() == 2);
}

TEST_CASE("a node whose reads hang is done without in seconds if the others have room") {
  Cluster c(3);
  c.hanging = {NodeId{2}};
  SUBCASE("what it has to say is said in time") {}
  SUBCASE("it says nothing at all: the version comes into force without its word") {
    c.wedged = {NodeId{2}};
  }
  c.kill(3);
  c.settle();
  CHECK(c.s.state() == ClusterState::kLoading);
  c.pass(kLoadSilence + kBehindAfter + 1s);
  CHECK(c.s.state() == ClusterState::kReady);
  CHECK(c.says("load_failed"));
  CHECK(c.s.members().contains(NodeId{2}));
  if (c.wedged.empty()) return;
  // Its word comes late: it follows then.
  c.from(c.workers.at(2), Loaded{c.s.active()->version});
  REQUIRE(c.sent<Activate>());
  CHECK(c.sent<Activate>()->version == c.s.active()->version);
}

TEST_CASE("a node whose reads hang is waited for where the others have no room") {
  auto o = with_experts_of(14 * kMiB);  // four fit on a device beside a shard, six do not
  Cluster c(2, o);
  c.hanging = {NodeId{1}};
  c.frozen = true;
  const auto both = c.s.active()->version;
  c.kill(2);
  REQUIRE(c.s.pending());
  CHECK(c.s.pending()->version > both);
  const auto version = c.s.pending()->version;
  c.from(c.workers.at(1), LoadProgress{version, 0, 10});
  c.pass(kLoadSilence + 10s);
  REQUIRE(c.s.pending());
  CHECK(c.s.pending()->version == version);
  c.from(c.workers.at(1), LoadProgress{version, 5, 10});  // slow, not dead
  c.pass(limits::kLoadProgressDeadline - 5s);
  CHECK(c.s.pending()->version == version);
  c.from(c.workers.at(1), Loaded{version});
  CHECK(c.s.state() == ClusterState::kReady);
}

TEST_CASE("a cluster forms without the node whose reads hang or fail") {
  auto o = options();
  o.engine.min_devices = 3;
  Cluster c(0, o);
  SUBCASE("hang") { c.hanging = {NodeId{2}}; }
  SUBCASE("fail") { c.denied = {NodeId{2}}; }
  for (int w = 1; w <= 3; ++w) c.add(w);
  c.settle();
  c.pass(kLoadSilence + 1s);
  CHECK(c.s.state() == ClusterState::kReady);
  CHECK(c.slots_on(NodeId{2}) == 0);
}

TEST_CASE("in the background, too, others do not wait for a node whose reads hang") {
  Cluster c(1);
  c.hanging = {NodeId{2}};
  c.add(2);
  c.pass(500ms);
  REQUIRE(c.s.pending());
  c.add(3);
  c.pass(kLoadSilence + 3s);
  CHECK(!c.s.pending());
  CHECK(c.slots_on(NodeId{2}) == 0);
  CHECK(c.slots_on(NodeId{3}) == 2);
  CHECK(c.s.state() == ClusterState::kReady);
}

TEST_CASE("devices of all sizes form a cluster, in whatever order they come") {
  for (const std::size_t tiny : {0u, 1u, 2u}) {
    auto o = with_experts_of(4 * kMiB);
    o.engine.min_devices = 3;
    Cluster c(0, o);
    for (int w = 1; w <= 3; ++w)
      c.add(w, join_of(100 + w, w == static_cast<int>(tiny) + 1 ? kMiB : 64 * kMiB));
    c.settle();
    CHECK(c.s.state() == ClusterState::kReady);
    c.pass(2s);
    CHECK(c.says("left_out"));
    CHECK_FALSE(c.says("plan"));
    const NodeId small{static_cast<std::uint32_t>(tiny) + 1};
    CHECK(c.slots_on(small) == 0);
    for (const auto& [id, member] : c.s.members()) CHECK(member.state == MemberState::kReady);
  }
}

TEST_CASE("a newcomer is no newcomer for ever where the goal cannot be had") {
  auto o = options();
  o.engine.data_parallel_size = 40;  // 2 MiB each
  Cluster c(1, o);                   // one at least is served
  CHECK(c.s.active()->replicas.size() == 1);
  const Address small = c.add(2, join_of(102, kMiB));
  c.pass(2s);
  CHECK(c.says("plan"));
  CHECK(c.s.state() == ClusterState::kReady);
  CHECK(c.s.members().at(small.node).state == MemberState::kReady);
}

TEST_CASE("more copies than there is room for do not keep a cluster from forming") {
  auto o = with_experts_of(21 * kMiB);  // two on a device, and a shard
  o.engine.redundant_experts = 4;
  Cluster c(2, o);
  CHECK(c.slots_on(NodeId{1}) + c.slots_on(NodeId{2}) == 4);
  c.pass(2s);
  CHECK(c.says("plan"));  // what is missing for the others
  for (const auto& [id, member] : c.s.members()) CHECK(member.state == MemberState::kReady);
}

TEST_CASE("a device fails on a node that stays: its replica's other shards end before the repair") {
  auto o = options();
  o.engine.pipeline_parallel_size = 2;
  o.engine.data_parallel_size = 1;
  Cluster c(2, o);
  REQUIRE(c.s.active()->shards[0].device.node != c.s.active()->shards[1].device.node);
  c.frozen = true;
  c.failed = {2};
  c.from(c.workers.at(2), Renew{++c.sequence, {{0, 0, 0, "ECC error"}}, {}});
  const auto first = c.sent<Load>();
  REQUIRE(first);
  CHECK(first->placement.shards.empty());  // nothing begins in it
  for (const auto& layer : first->placement.experts)
    for (const auto& slot : layer.slots) CHECK(slot.device.node == NodeId{1});
  for (const auto& [w, address] : c.workers)
    if (c.s.pending()) c.from(address, Loaded{first->placement.version});
  REQUIRE(c.sent<Activate>());
  CHECK(!c.s.pending());  // not before all have let go
  for (const auto& [w, address] : c.workers)
    if (c.s.active()->version == first->placement.version && !c.s.pending())
      c.from(address, Activated{first->placement.version});
  REQUIRE(c.s.pending());
  CHECK(c.s.pending()->shards.size() == 2);
}

TEST_CASE("spare copies are given up where lost experts find no other room") {
  auto o = with_experts_of(21 * kMiB);  // two on a device, and a shard
  o.engine.redundant_experts = 2;
  o.engine.data_parallel_size = 1;
  Cluster c(3, o);
  c.pass(1s);
  // The node that alone has some expert, and not the replica.
  NodeId lost{};
  for (const NodeId node : {NodeId{1}, NodeId{2}, NodeId{3}}) {
    if (node == c.s.active()->replicas[0].node) continue;
    std::map<std::int32_t, int> elsewhere;
    for (const auto& slot : c.s.active()->experts[0].slots)
      elsewhere[slot.expert] += slot.device.node == node ? 0 : 1;
    for (const auto& [expert, copies] : elsewhere)
      if (copies == 0) lost = node;
  }
  REQUIRE(lost != NodeId{});
  c.kill(static_cast<int>(lost.value));
  CHECK(c.says("placement"));
  c.settle();
  CHECK(c.s.state() == ClusterState::kReady);
  std::set<std::int32_t> experts;
  for (const auto& slot : c.s.active()->experts[0].slots) experts.insert(slot.expert);
  CHECK(experts.size() == 4);
}

TEST_CASE("a version that was given up while another one serves is let go") {
  Cluster c(1);
  const auto retired = [&] {
    return std::count(c.retired.begin(), c.retired.end(), c.s.active()->version);
  };
  REQUIRE(retired() == 1);
  c.denied = {NodeId{2}};
  c.add(2);
  c.pass(250ms);
  CHECK(c.says("load_failed"));
  CHECK(!c.s.pending());
  CHECK(retired() == 3);  // to each of two members
}

}  // namespace
}  // namespace troupe
