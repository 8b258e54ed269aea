#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/actors/supervisor/head_fixture.h"

namespace troupe {
namespace {

using namespace testing;

TEST_CASE("a session is greeted, and closed if it says nothing") {
  Head h;
  h.up(1);
  const auto greeting = h.sent<Greeting>();
  REQUIRE(greeting);
  CHECK(greeting->cluster_id == "c1");
  CHECK(greeting->checkpoint_hash == "abc");
  CHECK(!greeting->numerics);
  REQUIRE(h.last.wake());
  CHECK(*h.last.wake() == h.now + limits::kHandshakeDeadline);
  h.wait(limits::kHandshakeDeadline);
  REQUIRE(all<CloseSession>(h.last).size() == 1);
  CHECK(all<CloseSession>(h.last)[0].session == 1);
}

TEST_CASE("who may not join is told why, closed, counted and logged") {
  struct Case {
    void (*change)(Join&);
    ErrorCode code;
    const char* text;
  };
  const Case cases[] = {
      {[](Join& j) {
         j.protocol = {70, 90};
       },
       ErrorCode::kRefused, "protocols 70 to 90"},
      {[](Join& j) { j.checkpoint_hash = "abd"; }, ErrorCode::kRefused, "--model"},
      {[](Join& j) { j.numerics = {Numerics::kReference}; }, ErrorCode::kRefused, "numerics bf16"},
      {[](Join& j) { j.numerics.clear(); }, ErrorCode::kRefused, "numerics"},
      {[](Join& j) { j.role = "head"; }, ErrorCode::kInvalidArgument, "role"},
      {[](Join& j) { j.devices.clear(); }, ErrorCode::kInvalidArgument, "0 devices"},
      {[](Join& j) { j.devices.resize(65, j.devices[0]); }, ErrorCode::kInvalidArgument,
       "65 devices"},
      {[](Join& j) { j.devices[0].memory_total = 0; }, ErrorCode::kInvalidArgument,
       "--device-memory"},
      {[](Join& j) { j.devices[0].memory_total = ~0ull; }, ErrorCode::kInvalidArgument,
       "--device-memory"},
      {[](Join& j) { j.devices[0].threads = 100000; }, ErrorCode::kInvalidArgument, "--threads"},
      {[](Join& j) { j.devices[0].kind = "tpu"; }, ErrorCode::kInvalidArgument, "cpu nor cuda"},
      {[](Join& j) { j.host = "a\nb"; }, ErrorCode::kInvalidArgument, "host name"},
      {[](Join& j) { j.pid = 0; }, ErrorCode::kInvalidArgument, "process id"},
      {[](Join& j) { j.fabric_address.clear(); }, ErrorCode::kInvalidArgument, "bulk address"},
  };
  for (const auto& c : cases) {
    auto o = options();
    o.engine.numerics = Numerics::kBf16;
    Head h(o);
    Join j = good_join();
    c.change(j);
    CAPTURE(c.text);
    CHECK(!h.join(1, j));
    const auto no = h.sent<Refused>();
    REQUIRE(no);
    CHECK(no->code == c.code);
    CHECK_MESSAGE(contains(no->reason, c.text), no->reason);
    REQUIRE(all<CloseSession>(h.last).size() == 1);
    CHECK(h.s.counters().refused_joins == 1);
    const auto noted = all<EventNoted>(h.last);
    REQUIRE(noted.size() == 1);
    CHECK(noted[0].event.kind == "refused");
    CHECK(h.s.members().empty());
  }
}

TEST_CASE("the best numerics that all have is picked once and kept") {
  auto o = options();
  o.engine.min_devices = 2;
  Head h(o);
  Join fast = good_join(1);
  fast.numerics = {Numerics::kReference, Numerics::kBf16KvFp8, Numerics::kBf16};
  REQUIRE(h.join(1, fast));
  CHECK(!h.s.numerics());
  CHECK(h.s.state() == ClusterState::kForming);
  CHECK(contains(h.s.message(), "1 of 2 are here"));
  CHECK(contains(h.s.message(), "troupe worker --head here:6379"));
  REQUIRE(h.join(2, good_join(2)));
  CHECK(h.s.numerics() == Numerics::kBf16);
  REQUIRE(h.sent<Load>());
  CHECK(h.sent<Load>()->placement.numerics == Numerics::kBf16);
  Join plain = good_join(3);
  plain.numerics = {Numerics::kReference};
  CHECK(!h.join(3, plain));
}

TEST_CASE("what tensor cores compute is picked by nobody but who names it") {
  auto o = options();
  Join gpu = good_join(1);
  gpu.numerics = {Numerics::kBf16, Numerics::kCudaMmaKvFp8, Numerics::kCudaMma};
  gpu.devices.front().architecture = "sm_90";
  Head unnamed(o);
  REQUIRE(unnamed.join(1, gpu));
  CHECK(unnamed.s.numerics() == Numerics::kBf16);
  o.engine.numerics = Numerics::kCudaMma;
  Head named(o);
  CHECK(!named.join(1, good_join(1)));
  REQUIRE(named.sent<Refused>());
  CHECK(contains(named.sent<Refused>()->reason,
                 "cannot run the cluster's numerics cuda_mma (it has"));
  REQUIRE(named.join(2, gpu));
  CHECK(named.s.numerics() == Numerics::kCudaMma);
  gpu.devices.front().architecture = "sm_80";
  CHECK(!named.join(3, gpu));
  CHECK(contains(named.sent<Refused>()->reason, "tensor cores of sm_80"));
  // The same of a worker whose own differ; that of numerics without tensor cores may differ.
  gpu.devices.push_back(gpu.devices.front());
  gpu.devices.back().architecture = "sm_90";
  Head mixed(o);
  CHECK(!mixed.join(1, gpu));
  CHECK(contains(mixed.sent<Refused>()->reason, "tensor cores of sm_90"));
  Head exact(options());
  CHECK(exact.join(1, gpu));
  gpu.devices.pop_back();
  // With nothing else in common there is nothing to pick.
  Head bare(options());
  gpu.numerics = {Numerics::kCudaMma};
  CHECK(!bare.join(1, gpu));
  CHECK(contains(bare.sent<Refused>()->reason, "no numerics in common"));
}

TEST_CASE("load, activate, route; both ends of a pair get the same token") {
  auto o = options();
  o.engine.min_devices = 2;
  Head h(o);
  const auto a = h.join(1, good_join(1));
  const auto b = h.join(2, good_join(2));
  REQUIRE((a && b));
  CHECK(h.s.state() == ClusterState::kLoading);
  std::map<NodeId, Load> loads;
  for (const auto& send : all<Send>(h.last)) {
    if (const auto* load = std::get_if<Load>(send.message.get())) loads[send.to.node] = *load;
  }
  REQUIRE(loads.size() == 2);
  REQUIRE(loads[a->node].peers.size() == 1);
  CHECK(loads[a->node].peers[0].id == b->node);
  CHECK(loads[a->node].peers[0].incarnation == b->incarnation);
  CHECK(loads[a->node].peers[0].token == loads[b->node].peers[0].token);
  CHECK(loads[a->node].peers[0].token != FabricToken{});
  const auto version = h.s.placement()->version;
  h.from(*a, Loaded{version});
  CHECK(h.s.state() == ClusterState::kLoading);
  h.from(*b, Loaded{PlacementVersion{99}});  // of no version of ours
  CHECK(h.s.state() == ClusterState::kLoading);
  h.from(*b, Loaded{version});
  CHECK(h.s.state() == ClusterState::kReady);
  CHECK(h.count_sent<Activate>() == 2);
  const auto routes = h.router_hears<ReplicasChanged>();
  REQUIRE(routes);
  REQUIRE(routes->replicas.size() == 2);
  CHECK(routes->replicas[1].address == Address{b->node, b->incarnation, {ActorKind::kReplica, 1}});
}

TEST_CASE("an id is kept over lives, an incarnation never") {
  Head h;
  const auto first = h.join(1, good_join(1));
  REQUIRE(first);
  const auto kept = h.kept_next_node();
  Join again = good_join(2);
  again.held_id = first->node;
  again.held_cluster = "c1";
  SUBCASE("its session is down: it gets the id back") {
    h.down(1);
    const auto second = h.join(2, again);
    REQUIRE(second);
    CHECK(second->node == first->node);
    CHECK(second->incarnation > first->incarnation);
  }
  SUBCASE("another process lives with it: a new id") {
    const auto second = h.join(2, again);
    REQUIRE(second);
    CHECK(second->node != first->node);
  }
  SUBCASE("the same process takes it from itself, and the old session is closed") {
    again.pid = 1;
    const auto second = h.join(2, again);
    REQUIRE(second);
    CHECK(second->node == first->node);
    CHECK(second->incarnation > first->incarnation);
    REQUIRE(all<CloseSession>(h.last).size() == 1);
    CHECK(all<CloseSession>(h.last)[0].session == 1);
    CHECK(h.s.members().size() == 1);
    // The old session's end does not touch the new life.
    h.down(1);
    CHECK(h.s.members().size() == 1);
  }
  SUBCASE("another cluster gave it: a new id") {
    h.down(1);
    again.held_cluster = "c2";
    again.held_id = NodeId{77};
    CHECK(h.join(2, again)->node != NodeId{77});
  }
  SUBCASE("an earlier life of this head gave it") {
    auto o = options();
    o.incarnation = Incarnation{first_incarnation(1000, 0)};
    CHECK(kept == 2);
    o.next_node = 8;
    Head restarted(o);
    again.held_id = NodeId{5};
    const auto second = restarted.join(1, again);
    REQUIRE(second);
    CHECK(second->node == NodeId{5});
    CHECK(second->incarnation > first->incarnation);
    CHECK(!restarted.kept_next_node());
    CHECK(restarted.join(2, good_join(9))->node == NodeId{8});
    CHECK(restarted.kept_next_node() == 9);
  }
}

TEST_CASE("first incarnations grow whatever the clock does") {
  CHECK(first_incarnation(0, 5'000'000) == 5'000'000);
  CHECK(first_incarnation(5'000'000, 0) == 5'000'000 + (1ull << 32));
  CHECK(first_incarnation(5'000'000, -1) == 5'000'000 + (1ull << 32));
  CHECK(first_incarnation(1, 1'700'000'000'000'000) == 1'700'000'000'000'000);
}

TEST_CASE("a message of an old life is refused with an error and never used") {
  Head h;
  const auto old = h.join(1, good_join(1));
  h.down(1);
  Join again = good_join(1);
  again.held_id = old->node;
  again.held_cluster = "c1";
  const auto young = h.join(2, again);
  REQUIRE(young);
  const auto version = h.s.placement()->version;
  h.from(*old, Loaded{version});
  const auto error = h.sent<Undeliverable>();
  REQUIRE(error);
  CHECK(error->error.code == ErrorCode::kRefused);
  CHECK(h.s.state() == ClusterState::kLoading);
  h.from(*old, Leave{"bye"});
  CHECK(h.s.members().size() == 1);
  h.from(Address{NodeId{50}, Incarnation{1}, {ActorKind::kNodeAgent, 0}}, Renew{1, {}, {}});
  CHECK(h.sent<Undeliverable>());
  CHECK(h.s.counters().refused_messages == 3);
}

TEST_CASE("a lease ends unless renewed, and lies do not count as reports") {
  Head h;
  const auto a = h.join(1, good_join(1));
  const auto start = h.now;
  h.pass(1000ms);
  DeviceReport report{5 * kMiB, 0.5f, 0, ""};
  h.from(*a, Renew{1, {report}, {}});
  REQUIRE(h.sent<Renewed>());
  CHECK(h.sent<Renewed>()->sequence == 1);
  h.from(*a, Renew{1, {report}, {}});  // again: no
  CHECK(!h.sent<Renewed>());
  h.from(*a, Renew{2, {{1, std::numeric_limits<float>::quiet_NaN(), 0, ""}}, {}});
  CHECK(h.sent<Renewed>());
  h.from(*a, Renew{3, {report, report}, {}});
  CHECK(h.sent<Renewed>());
  CHECK(h.s.counters().garbage == 3);
  CHECK(h.s.members().at(a->node).devices[0].memory_used == 5 * kMiB);
  h.pass(limits::kLease - 1ms);
  CHECK(h.s.members().size() == 1);
  h.wait(1ms);
  CHECK(h.s.members().empty());
  CHECK(h.s.counters().lost == 1);
  CHECK(h.s.state() == ClusterState::kForming);
  REQUIRE(all<CloseSession>(h.last).size() == 1);
  CHECK(h.now > start);
  // It comes too late.
  h.from(*a, Renew{4, {report}, {}});
  CHECK(h.sent<Undeliverable>());
}

TEST_CASE("a load that fails") {
  Head h;
  const auto a = h.join(1, good_join(1));
  const auto version = h.s.placement()->version;
  const auto keep_alive = [&](std::uint64_t n) {
    h.from(*a, Renew{n, {{0, 0, 0, ""}}, {}, {}, n - 1});
  };
  SUBCASE("for a passing reason is tried again, later each time") {
    h.from(*a, LoadFailed{version, unavailable("no route")});
    CHECK(h.s.state() == ClusterState::kDegraded);
    CHECK(contains(h.s.message(), "node-1 on here could not load its part: no route"));
    h.wait(limits::kLoadRetryMin);
    REQUIRE(h.sent<Load>());
    CHECK(h.s.placement()->version.value == version.value + 1);
    h.from(*a, LoadFailed{version, unavailable("late news of the first")});
    CHECK(h.s.state() == ClusterState::kLoading);
    h.from(*a, LoadFailed{h.s.placement()->version, unavailable("no route")});
    keep_alive(1);
    h.wait(limits::kLoadRetryMin);
    CHECK(!h.sent<Load>());
    h.wait(limits::kLoadRetryMin);
    CHECK(h.sent<Load>());
  }
  SUBCASE("for good is left to other members") {
    h.from(*a, LoadFailed{version, corrupt("model.safetensors is cut short")});
    CHECK(h.s.state() == ClusterState::kDegraded);
    CHECK(contains(h.s.message(), "cut short"));
    for (std::uint64_t i = 1; i < 29; ++i) {
      h.wait(1s);
      CHECK(!h.sent<Load>());
      keep_alive(i);
    }
    const auto b = h.join(2, good_join(2));
    REQUIRE(b);
    // The one that can read takes all of it; the other one is asked again after a while.
    REQUIRE(h.sent<Load>());
    for (const auto& shard : h.s.placement()->shards) CHECK(shard.device.node == b->node);
  }
  SUBCASE("by silence is ended, progress keeps it going") {
    std::uint64_t n = 0;
    const auto pass = [&](Duration d) {
      for (const auto end = h.now + d; h.now < end && h.s.state() == ClusterState::kLoading;) {
        h.wait(1s);
        keep_alive(++n);
      }
    };
    pass(limits::kLoadProgressDeadline - 2s);
    h.from(*a, LoadProgress{version, 1, 10});
    pass(limits::kLoadProgressDeadline - 2s);
    CHECK(h.s.state() == ClusterState::kLoading);
    h.from(*a, LoadProgress{version, 1, 10});  // no progress in it
    pass(10s);
    CHECK(h.s.state() == ClusterState::kDegraded);
    CHECK(contains(h.s.message(), "made no progress"));
  }
}

TEST_CASE("a model that does not fit is said with bytes, and tried when a worker comes") {
  auto o = options();
  o.engine.pipeline_parallel_size = 2;
  o.engine.data_parallel_size = 1;
  Head h(o);
  Join small = good_join(1);
  small.devices[0].memory_total = kMiB + kMiB / 2;
  REQUIRE(h.join(1, small));
  CHECK(h.s.state() == ClusterState::kDegraded);
  CHECK(contains(h.s.message(), " bytes"));
  small.pid = 2;
  REQUIRE(h.join(2, small));
  CHECK(h.s.state() == ClusterState::kLoading);
}

TEST_CASE("clients: hello, status, news, stop") {
  Head h;
  const auto a = h.join(1, good_join(100));
  Join remote = good_join(200);
  remote.host = "there";
  const auto b = h.join(2, remote);
  h.up(3);
  h.from_session(3, StatusQuery{1});  // before hello
  CHECK(h.sent<Refused>());
  h.down(3);

  h.up(4);
  h.from_session(4, ClientHello{kProtocol, "status"});
  REQUIRE(h.sent<ClientWelcome>());
  CHECK(h.sent<ClientWelcome>()->session == 4);
  h.from_session(4, StatusQuery{7});
  REQUIRE(all<AnswerStatus>(h.last).size() == 1);
  CHECK(!all<AnswerStatus>(h.last)[0].reply);
  CHECK(all<AnswerStatus>(h.last)[0].session == 4);
  CHECK(all<AnswerStatus>(h.last)[0].query == 7);
  h.from_session(4, Subscribe{});
  h.log("hello");
  REQUIRE(h.sent<ClusterNews>());
  CHECK(h.sent<ClusterNews>()->event.text == "A worker at peer did not join: hello");

  h.from_session(4, StopQuery{8});
  REQUIRE(h.sent<StopReply>());
  CHECK(h.sent<StopReply>()->pids == std::vector<std::int32_t>{10, 100});
  CHECK(h.count_sent<Stop>() == 2);
  CHECK(h.s.state() == ClusterState::kStopping);
  CHECK(!h.join(5, good_join(300)));
  CHECK(h.sent<Refused>()->code == ErrorCode::kUnavailable);
  h.from(*a, Leave{"the cluster stops"});
  CHECK(!h.may_end());
  SUBCASE("the last one leaves") {
    h.from(*b, Leave{"the cluster stops"});
    CHECK(h.may_end());
    CHECK(h.kept_next_node() == 1);
  }
  SUBCASE("one does not answer") {
    for (std::uint64_t i = 1; i <= 4; ++i) {
      h.wait(1s);
      h.from(*b, Renew{i, {{0, 0, 0, ""}}, {}, {}, i - 1});
      CHECK(!h.may_end());
    }
    h.wait(1s);
    CHECK(h.may_end());
    CHECK(!h.kept_next_node());
  }
}

TEST_CASE("the status has every field that is promised") {
  Head h;
  const auto a = h.join(1, good_join(100));
  h.from(*a, Loaded{h.s.placement()->version});
  h.from(*a, Renew{1, {{3 * kMiB, 0.25f, 0, ""}}, {{0, 2, 1, 100, 40, 5, 30}, {9, 9, 9, 9, 9, 9}}});
  h.log("not \xff UTF-8");
  RequestCounters counters{1, 2, 3, 4, 5};
  counters.rates = {10, 20, Quantiles{30, 40}, std::nullopt};
  counters.list = {{7, true, 3, 11, 12, 1, h.now}};
  const auto j = nlohmann::json::parse(status_json(h.s, counters, h.now + 1500ms));
  const auto& rates = j["requests"]["rates"];
  CHECK(rates["prompt_tokens_per_s"] == 10);
  CHECK(rates["generation_tokens_per_s"] == 20);
  CHECK(rates["ttft_ms"] == nlohmann::json({{"p50", 30}, {"p99", 40}}));
  CHECK(rates["inter_token_ms"].is_null());
  CHECK(j["requests"]["list"][0] == nlohmann::json({{"id", 7},
                                                    {"state", "running"},
                                                    {"replica", 3},
                                                    {"prompt_tokens", 11},
                                                    {"tokens", 12},
                                                    {"age_s", 1.5},
                                                    {"replays", 1}}));
  for (const char* key : {"id", "state", "version", "model", "numerics", "uptime_s", "message"}) {
    CHECK(j["cluster"].contains(key));
  }
  CHECK(j["cluster"]["state"] == "ready");
  CHECK(j["cluster"]["numerics"] == "bf16");
  CHECK(j["cluster"]["uptime_s"] == 1.5);
  REQUIRE(j["nodes"].size() == 1);
  const auto& node = j["nodes"][0];
  CHECK(node["id"] == "node-1");
  CHECK(node["host"] == "here");
  CHECK(node["pid"] == 100);
  CHECK(node["role"] == "worker");
  CHECK(node["state"] == "ready");
  CHECK(node["last_seen_ms"] == 1500);
  CHECK(node["devices"][0]["id"] == "node-1/0");
  CHECK(node["devices"][0]["kind"] == "cpu");
  CHECK(node["devices"][0]["memory_total"] == 64 * kMiB);
  CHECK(node["devices"][0]["memory_used"] == 3 * kMiB);
  CHECK(node["devices"][0]["utilization"] == 0.25);
  REQUIRE(j["replicas"].size() == 1);
  const auto& replica = j["replicas"][0];
  CHECK(replica["id"] == 0);
  CHECK(replica["state"] == "ready");
  CHECK(replica["shards"][0]["layers"] == nlohmann::json({0, 1}));
  CHECK(replica["shards"][0]["tp_rank"] == 0);
  CHECK(replica["shards"][0]["device"] == "node-1/0");
  CHECK(replica["running"] == 2);
  CHECK(replica["waiting"] == 1);
  CHECK(replica["kv_blocks_total"] == 100);
  CHECK(replica["kv_blocks_used"] == 40);
  CHECK(replica["kv_blocks_cached"] == 30);
  const auto& experts = j["experts"];
  CHECK(experts["layers"] == 1);
  CHECK(experts["experts"] == 4);
  CHECK(experts["copies"] == 4);
  for (const char* key : {"imbalance", "moves_pending", "last_rebalance_s"}) {
    CHECK(experts.contains(key));
  }
  CHECK(experts["placement"][0]["layer"] == 1);
  CHECK(experts["placement"][0]["slots"][3]["expert"] == 3);
  CHECK(experts["placement"][0]["slots"][3]["device"] == "node-1/0");
  int number = 0;
  for (const char* key : {"running", "waiting", "finished", "failed", "replayed"}) {
    CHECK(j["requests"][key] == ++number);
  }
  CHECK(j["events"][0]["kind"] == "node_joined");
  CHECK(j["events"][0]["time"] == 1'700'000'000.0);
  // A lost node stays to be seen.
  h.down(1);
  const auto lost = nlohmann::json::parse(status_json(h.s, {}, h.now));
  CHECK(lost["cluster"]["state"] == "degraded");
  CHECK(lost["nodes"][0]["state"] == "lost");
  CHECK(lost["replicas"].empty());
  CHECK(contains(lost["events"].dump(), "layers 0-1 of replica 0"));
}

}  // namespace
}  // namespace troupe
