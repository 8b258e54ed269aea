#include "model/placement/plan_placement.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "model/placement/spread_experts.h"
#include "tests/model/placement/plan_checks.h"

namespace troupe {
namespace {

using namespace testing;

TEST_CASE("defaults: one replica a device, experts over all devices") {
  const auto in = small_input(2, 1);
  const auto p = plan_placement(in);
  REQUIRE(p.ok());
  CHECK(p->version == in.version);
  CHECK(p->replicas.size() == 2);
  CHECK(p->shards[0].device.node == NodeId{1});
  CHECK(p->shards[1].device.node == NodeId{2});
  CHECK(p->experts.size() == 4);
  CHECK(p->experts[0].layer == 1);
  check_layers(in, *p);
  check_experts(in, *p);
  check_memory(in, *p);
  // Half of what is left (about 500 MiB), and no more than max_num_seqs full sequences.
  const std::uint64_t kv = static_cast<std::uint64_t>(p->replicas[0].kv_blocks) * 16 * 804;
  CHECK(kv > 400 * kMiB);
  CHECK(kv < 512 * kMiB);
}

TEST_CASE("the default cache is modest on a large CPU device and greedy on a GPU") {
  auto in = small_input(1, 1, 1ull << 40);
  in.model.kv_bytes_per_token_layer = 16000;
  const std::uint64_t block = 16 * (16000 * 5 + 4);
  const auto cpu = plan_placement(in);
  REQUIRE(cpu.ok());
  CHECK(static_cast<std::uint64_t>(cpu->replicas[0].kv_blocks) == kCpuKvCacheBytesMax / block);
  in.devices[0].kind = "cuda";
  const auto gpu = plan_placement(in);
  REQUIRE(gpu.ok());
  CHECK(gpu->replicas[0].kv_blocks == 256 * 256);  // all that 256 sequences of 4096 can use
}

TEST_CASE("every combination of sizes works on any number of devices") {
  for (int nodes = 1; nodes <= 4; ++nodes) {
    for (int pp = 1; pp <= 5; ++pp) {
      for (int dp = 0; dp <= 5; ++dp) {
        for (const auto& [tp, redundant] :
             {std::pair{1, 0}, {1, 8}, {1, 40}, {2, 8}, {4, 0}, {8, 40}}) {
          auto in = small_input(nodes, 1 + nodes % 2);
          in.engine.tensor_parallel_size = tp;
          in.engine.pipeline_parallel_size = pp;
          in.engine.data_parallel_size = dp;
          in.engine.redundant_experts = redundant;
          CAPTURE(nodes);
          CAPTURE(tp);
          CAPTURE(pp);
          CAPTURE(dp);
          const auto p = plan_placement(in);
          REQUIRE(p.ok());
          if (dp > 0) CHECK(p->replicas.size() == static_cast<std::size_t>(dp));
          check_layers(in, *p);
          check_experts(in, *p);
          check_memory(in, *p);
          // Shards spread evenly.
          std::map<DeviceRef, std::size_t> on;
          for (const auto& s : p->shards) ++on[s.device];
          const std::size_t n = in.devices.size();
          for (const auto& [device, count] : on) CHECK(count <= (p->shards.size() + n - 1) / n);
        }
      }
    }
  }
}

TEST_CASE("the order in which devices came does not matter") {
  auto in = small_input(3, 2);
  in.engine.redundant_experts = 5;
  const auto p = plan_placement(in);
  std::mt19937 random(1);
  for (int i = 0; i < 10; ++i) {
    std::shuffle(in.devices.begin(), in.devices.end(), random);
    CHECK(*plan_placement(in) == *p);
  }
}

TEST_CASE("stages are cut where the heaviest is lightest") {
  auto in = small_input(1, 1);
  in.model.embedding_bytes = 0;
  in.model.head_bytes = 0;
  struct Case {
    std::vector<std::uint64_t> bytes;
    int stages;
    std::uint64_t heaviest;
  };
  for (const auto& c :
       {Case{{1, 1, 1, 1}, 2, 2}, Case{{9, 1, 1, 1}, 2, 9}, Case{{1, 1, 1, 9}, 3, 9},
        Case{{3, 3, 3, 3, 3}, 3, 6}, Case{{5, 1, 1, 1, 5}, 3, 5}, Case{{0, 0, 0}, 3, 0},
        Case{{2, 3, 4, 5, 6}, 2, 11}}) {
    in.model.layers.clear();
    for (const auto b : c.bytes) in.model.layers.push_back({b * 1000, false});
    in.engine.pipeline_parallel_size = c.stages;
    const auto p = plan_placement(in);
    REQUIRE(p.ok());
    check_layers(in, *p);
    std::uint64_t heaviest = 0;
    for (const auto& s : p->shards) {
      std::uint64_t sum = 0;
      for (int l = s.first_layer; l <= s.last_layer; ++l)
        sum += c.bytes[static_cast<std::size_t>(l)];
      heaviest = std::max(heaviest, sum);
    }
    CHECK(heaviest == c.heaviest);
  }
}

TEST_CASE("redundant copies lie on another node when there is one") {
  for (const int redundant : {1, 8, 32}) {
    auto in = small_input(2, 2);
    in.engine.redundant_experts = redundant;
    const auto p = plan_placement(in);
    REQUIRE(p.ok());
    for (const auto& layer : p->experts) {
      std::map<std::int32_t, std::set<NodeId>> nodes;
      std::map<std::int32_t, int> copies;
      for (const auto& s : layer.slots) {
        nodes[s.expert].insert(s.device.node);
        ++copies[s.expert];
      }
      for (const auto& [expert, count] : copies) {
        CHECK(count <= 2);
        CHECK(nodes[expert].size() == static_cast<std::size_t>(count));
      }
    }
  }
}

TEST_CASE("copies that would find no other device are left out") {
  auto in = small_input(1, 1);
  in.engine.redundant_experts = 8;
  const auto p = plan_placement(in);
  REQUIRE(p.ok());
  CHECK(p->experts[0].slots.size() == 32);
}

TEST_CASE("copies of an uneven cluster stay even where they can") {
  // Three devices on two nodes, every expert twice: the last copy has to change places with
  // another.
  const std::vector<DeviceRef> devices = {{NodeId{1}, 0}, {NodeId{1}, 1}, {NodeId{2}, 0}};
  const auto layers =
      spread_experts({0, 1, 2}, 3, expert_shares({3, 3, 3, {100, 100, 100}}), devices);
  for (const auto& layer : layers) {
    std::map<std::int32_t, int> copies;
    for (const auto& s : layer.slots) ++copies[s.expert];
    for (const auto& [expert, count] : copies) CHECK(count == 2);
  }
}

TEST_CASE("flags that cannot be are named") {
  struct Case {
    void (*change)(PlacementInput&);
    const char* flag;
  };
  const Case cases[] = {
      {[](PlacementInput& i) { i.engine.tensor_parallel_size = 3; },
       "--tensor-parallel-size must be 1, 2, 4 or 8, not 3"},
      {[](PlacementInput& i) { i.engine.pipeline_parallel_size = 6; },
       "--pipeline-parallel-size 6"},
      {[](PlacementInput& i) { i.engine.pipeline_parallel_size = 0; },
       "--pipeline-parallel-size 0"},
      {[](PlacementInput& i) { i.engine.data_parallel_size = -1; }, "--data-parallel-size -1"},
      {[](PlacementInput& i) { i.engine.data_parallel_size = 1 << 20; }, "--data-parallel-size"},
      {[](PlacementInput& i) { i.engine.redundant_experts = -1; }, "--redundant-experts -1"},
      {[](PlacementInput& i) { i.engine.block_size = 0; }, "--block-size"},
      {[](PlacementInput& i) { i.engine.max_model_len = 0; }, "--max-model-len 0"},
  };
  for (const auto& c : cases) {
    auto in = small_input(2, 1);
    c.change(in);
    const auto p = plan_placement(in);
    REQUIRE(!p.ok());
    CHECK(p.error().code == ErrorCode::kInvalidArgument);
    CHECK_MESSAGE(contains(p.error().message, c.flag), p.error().message);
  }
  auto none = small_input(0, 0);
  CHECK(plan_placement(none).error().code == ErrorCode::kUnavailable);
}

TEST_CASE("what does not fit is said in bytes and where") {
  SUBCASE("experts") {
    auto in = small_input(2, 1, 4 * kMiB);
    const auto p = plan_placement(in);
    REQUIRE(!p.ok());
    CHECK(p.error().code == ErrorCode::kResourceExhausted);
    // 64 slots of 100000 bytes on each, 15/16 of 4 MiB to put them.
    const std::uint64_t lacking = 64 * 100'000 - plannable_bytes(4 * kMiB);
    CHECK(contains(p.error().message,
                   "; each of 2 devices lacks " + std::to_string(lacking) + " bytes"));
    // What is as low as it can be is no advice.
    CHECK(contains(p.error().message, "each. Add devices or memory."));
    in.engine.redundant_experts = 3;
    CHECK(contains(plan_placement(in).error().message,
                   "Add devices or memory, or lower --redundant-experts."));
  }
  SUBCASE("a shard") {
    auto in = small_input(2, 1, 16 * kMiB);
    in.devices[1].memory_total = 15 * kMiB;
    in.model.layers[2].bytes = 100 * kMiB;
    const auto p = plan_placement(in);
    REQUIRE(!p.ok());
    CHECK(p.error().code == ErrorCode::kResourceExhausted);
    const std::uint64_t need = 108 * kMiB + 804ull * 4096;
    const std::uint64_t room = plannable_bytes(16 * kMiB) - 64 * 100'000;
    CHECK_MESSAGE(
        contains(p.error().message, "node-1/0, lacks " + std::to_string(need - room) + " bytes"),
        p.error().message);
    CHECK(contains(
        p.error().message,
        "Add devices or memory, or raise --tensor-parallel-size or --pipeline-parallel-size."));
    in.engine.redundant_experts = 1;
    in.engine.data_parallel_size = 2;
    CHECK(contains(plan_placement(in).error().message,
                   "raise --tensor-parallel-size or --pipeline-parallel-size, or lower "
                   "--data-parallel-size or "
                   "--redundant-experts."));
    in.engine.redundant_experts = 0;
    in.engine.data_parallel_size = 1;
    in.engine.max_model_len = 1 << 20;  // a fifth of 800 MiB of KV cache a stage
    in.engine.pipeline_parallel_size = static_cast<std::int32_t>(in.model.layers.size());
    in.engine.tensor_parallel_size = 8;
    CHECK(contains(plan_placement(in).error().message,
                   "Add devices or memory, or lower --max-model-len."));
  }
  SUBCASE("a cache that does not hold one sequence") {
    auto in = small_input(1, 1);
    in.engine.kv_cache_memory = 804 * 4096 - 16;
    const auto p = plan_placement(in);
    REQUIRE(!p.ok());
    CHECK(contains(p.error().message, "lack 16 bytes"));
    in.engine.kv_cache_memory = 804 * 4096;
    REQUIRE(plan_placement(in).ok());
    CHECK(plan_placement(in)->replicas[0].kv_blocks == 256);
  }
}

TEST_CASE("a stage of few layers sets aside what it fills of the cache that is given") {
  // The head is heavier than three layers, so that the last stage has one of the five.
  auto in = small_input(2, 1, 64 * kMiB);
  in.model.num_experts = 0;
  in.model.kv_bytes_per_token = 0;
  for (auto& layer : in.model.layers) layer.bytes = 8 * kMiB;
  in.model.head_bytes = 28 * kMiB;
  in.engine.pipeline_parallel_size = 2;
  in.engine.max_model_len = 16;
  in.engine.kv_cache_memory = 25 * kMiB;
  const auto p = plan_placement(in);
  REQUIRE_MESSAGE(p.ok(), p.error().message);
  REQUIRE(p->shards.size() == 2);
  CHECK(p->shards[0].last_layer == 3);
  CHECK(static_cast<std::uint64_t>(p->replicas[0].kv_blocks) ==
        25 * kMiB / kv_block_bytes(in, 0, 3));
}

TEST_CASE("fewer replicas where not one fits on every device") {
  auto in = small_input(4, 1, 40 * kMiB);
  for (auto& l : in.model.layers) l.bytes = 5 * kMiB;
  in.devices[2].memory_total = 16 * kMiB;
  const auto p = plan_placement(in);
  REQUIRE(p.ok());
  CHECK(p->replicas.size() == 3);
  for (const auto& s : p->shards) CHECK(s.device.node != NodeId{3});
}

TEST_CASE("V3 on 18 nodes plans fast and evenly") {
  PlacementInput in;
  for (std::uint32_t n = 1; n <= 18; ++n) {
    for (std::uint32_t d = 0; d < 8; ++d)
      in.devices.push_back({{NodeId{n}, d}, "cuda", 80ull << 30});
  }
  for (int i = 0; i < 61; ++i) in.model.layers.push_back({400 * kMiB, i >= 3});
  in.model.num_experts = 256;
  in.model.expert_bytes = 44'040'192;
  in.model.embedding_bytes = in.model.head_bytes = 1853358080;
  in.model.kv_bytes_per_token_layer = 1152;
  in.engine.max_model_len = 163840;
  in.engine.redundant_experts = 32;
  const auto p = plan_placement(in);
  REQUIRE(p.ok());
  CHECK(p->replicas.size() == 144);
  check_layers(in, *p);
  check_experts(in, *p);
  check_memory(in, *p);
  for (const auto& layer : p->experts) {
    std::map<std::int32_t, std::set<NodeId>> nodes;
    for (const auto& s : layer.slots) nodes[s.expert].insert(s.device.node);
    const auto twice = std::count_if(nodes.begin(), nodes.end(),
                                     [](const auto& e) { return e.second.size() == 2; });
    CHECK(twice == 32);
  }
}

TEST_CASE("random inputs: every rule holds or the error names bytes") {
  int fitted = 0, refused = 0;
  for (std::uint32_t seed = 1; seed <= 1500; ++seed) {
    std::mt19937_64 random(seed);
    const auto pick = [&](std::uint64_t low, std::uint64_t high) {
      return low + random() % (high - low + 1);
    };
    PlacementInput in;
    const auto nodes = pick(1, 6);
    for (std::uint32_t n = 1; n <= nodes; ++n) {
      const auto devices = pick(1, 3);
      for (std::uint32_t d = 0; d < devices; ++d) {
        in.devices.push_back({{NodeId{n}, d}, pick(0, 1) ? "cpu" : "cuda", pick(1, 200) * kMiB});
      }
    }
    const auto layers = pick(1, 12);
    for (std::uint64_t l = 0; l < layers; ++l) {
      in.model.layers.push_back({pick(0, 8 * kMiB), pick(0, 2) > 0});
    }
    in.model.num_experts = static_cast<std::int32_t>(pick(0, 40));
    in.model.expert_bytes = pick(1, 200'000);
    in.model.embedding_bytes = pick(0, 10 * kMiB);
    in.model.head_bytes = pick(0, 10 * kMiB);
    in.model.kv_bytes_per_token_layer = pick(0, 2000);
    in.model.kv_bytes_per_token = 4;
    in.engine.max_model_len = static_cast<std::int64_t>(pick(1, 8192));
    in.engine.block_size = static_cast<std::int32_t>(pick(1, 64));
    in.engine.max_num_seqs = static_cast<std::int32_t>(pick(1, 256));
    in.engine.kv_cache_memory = pick(0, 2) ? 0 : pick(1, 32 * kMiB);
    in.engine.pipeline_parallel_size = static_cast<std::int32_t>(pick(1, layers));
    in.engine.data_parallel_size = static_cast<std::int32_t>(pick(0, 4));
    in.engine.redundant_experts = static_cast<std::int32_t>(pick(0, 1) ? 0 : pick(0, 60));
    in.engine.tensor_parallel_size = seed % 2 == 0 ? 1 : 1 << pick(0, 3);
    CAPTURE(seed);
    const auto p = plan_placement(in);
    if (p.ok()) {
      ++fitted;
      check_layers(in, *p);
      check_experts(in, *p);
      check_memory(in, *p);
    } else {
      ++refused;
      CHECK(p.error().code == ErrorCode::kResourceExhausted);
      CHECK(contains(p.error().message, " bytes"));
      CHECK(contains(p.error().message, "lack"));
    }
  }
  CHECK(fitted > 300);
  CHECK(refused > 100);
}

}  // namespace
}  // namespace troupe
