// Published models on clusters of which it is known whether they fit.

#include "tools/troupe/plan/fit.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>

#include "model/spec/sizes.h"
#include "runtime/byte_size.h"
#include "tests/tools/plan/questions.h"

namespace troupe {
namespace {

using testing::must;
using testing::published;
using testing::question;
using testing::v3_awq;

/// The layout keeps within every device, and within what the flags say.
void check_fit(const FitQuestion& q, const Fit& fit) {
  for (const DeviceFit& d : fit.devices) {
    CAPTURE(to_string(d.use.device));
    CHECK(d.total() <= d.memory);
    CHECK(d.spare_bytes <= d.use.expert_bytes);
  }
  CHECK(can_serve(fit.placement, model_costs(q.spec, *q.engine.numerics)));
  CHECK(fit.kv_tokens_min >= static_cast<std::uint64_t>(fit.engine.max_model_len));
}

FitAnswer asked(const FitQuestion& q) {
  FitAnswer answer = must(find_fit(q));
  if (answer.fit) {
    check_fit(q, *answer.fit);
  } else {
    CHECK(!answer.trouble.empty());
  }
  return answer;
}

bool fits(const ModelSpec& spec, const std::string& nodes, std::int64_t length = 0) {
  return asked(question(spec, nodes, length)).fit.has_value();
}

TEST_CASE("DeepSeek-V3 of FP8 needs sixteen devices of 80 GB, of int4 eight") {
  for (const char* name : {"deepseek-v3", "deepseek-r1"}) {
    const ModelSpec spec = published(name);
    CHECK(!fits(spec, "1x8:h100-80g", 4096));
    CHECK(fits(spec, "2x8:h100-80g", 32768));
    CHECK(fits(spec, "1x8:h200-141g", 32768));
  }
  CHECK(fits(v3_awq(), "1x8:h100-80g", 32768));
  CHECK(!fits(v3_awq(), "1x4:h100-80g", 4096));
}

TEST_CASE("Kimi K2 Thinking of int4 is some 590 GB") {
  const ModelSpec spec = published("kimi-k2-thinking");
  CHECK(fits(spec, "1x8:h200-141g", 32768));
  CHECK(fits(spec, "2x8:h100-80g", 32768));
  CHECK(!fits(spec, "1x4:h200-141g", 4096));
}

TEST_CASE("which distilled models fit on one device") {
  struct Case {
    const char* name;
    int gib;  ///< the least of 16, 24, 48, 80 with which it fits at 4,096 tokens; 0: none
  };
  const Case cases[] = {
      {"r1-distill-qwen-1.5b", 16}, {"r1-distill-qwen-7b", 16},  {"llama-3.1-8b", 24},
      {"r1-distill-qwen-14b", 48},  {"r1-distill-qwen-32b", 80}, {"llama-3.1-70b", 0},
  };
  for (const Case& c : cases) {
    const ModelSpec spec = published(c.name);
    for (const int gib : {16, 24, 48, 80}) {
      CAPTURE(std::string(c.name));
      CAPTURE(gib);
      CHECK(fits(spec, "1:" + std::to_string(gib) + "GiB", 4096) == (c.gib > 0 && gib >= c.gib));
    }
  }
}

TEST_CASE("a dense model that one device cannot hold gets stages") {
  const ModelSpec spec = published("llama-3.1-70b");
  FitQuestion q = question(spec, "1x2:h100-80g", 8192);
  const FitAnswer answer = asked(q);
  REQUIRE(answer.fit);
  CHECK(answer.fit->engine.pipeline_parallel_size == 2);
  CHECK(answer.fit->placement.shards.size() == 2);
  // Who says one stage is not given two, but told.
  q.choose_pipeline = false;
  const FitAnswer one = asked(q);
  REQUIRE(!one.fit);
  CHECK(std::any_of(one.remedies.begin(), one.remedies.end(), [](const Remedy& r) {
    return r.flag == "--pipeline-parallel-size" && r.value == "2";
  }));
}

TEST_CASE("the presets have as many copies on a device as is published") {
  const ModelSpec spec = published("deepseek-v3");
  struct Case {
    const char* nodes;
    std::size_t devices, slots;
    std::int32_t batched;
  };
  // arXiv 2412.19437, sec. 3.4: 9 and 2 routed experts on each device.
  for (const Case& c : {Case{"4x8:h100-80g", 32, 9, 2048}, Case{"18x8:h100-80g", 144, 2, 2048}}) {
    FitQuestion q = question(spec, c.nodes, 8192);
    q.engine.redundant_experts = 32;
    q.engine.data_parallel_size = static_cast<std::int32_t>(c.devices);
    q.engine.max_num_batched_tokens = c.batched;
    q.choose_redundant = q.choose_pipeline = false;
    const FitAnswer answer = asked(q);
    CAPTURE(answer.trouble);
    REQUIRE(answer.fit);
    CHECK(answer.fit->placement.replicas.size() == c.devices);
    for (const auto& layer : answer.fit->placement.experts) {
      std::map<DeviceRef, std::size_t> slots;
      for (const auto& slot : layer.slots) ++slots[slot.device];
      REQUIRE(slots.size() == c.devices);
      for (const auto& [device, count] : slots) REQUIRE(count == c.slots);
    }
    REQUIRE(answer.fit->survival);
    CHECK(answer.fit->survival->not_at_all.empty());
  }
}

TEST_CASE("two copies of every expert are chosen where they pay") {
  const ModelSpec spec = published("qwen3-30b-a3b");
  FitQuestion q = question(spec, "4:64GiB", 8192);
  const FitAnswer two = asked(q);
  REQUIRE(two.fit);
  CHECK(two.fit->engine.redundant_experts == 128);
  CHECK(two.fit->survival->at_once.size() == 4);
  CHECK(two.fit->experts_surviving == two.fit->experts);
  CHECK(two.fit->engine.kv_cache_memory == 0);
  std::uint64_t spare = 0;
  for (const DeviceFit& d : two.fit->devices) spare += d.spare_bytes;
  CHECK(spare == 48u * 128u * expert_bytes(spec, Numerics::kBf16));
  // Who says none has none, and is told what a loss means.
  q.choose_redundant = false;
  const FitAnswer one = asked(q);
  REQUIRE(one.fit);
  CHECK(one.fit->engine.redundant_experts == 0);
  CHECK(one.fit->survival->with_reload.size() == 4);
  CHECK(one.fit->experts_surviving == 0);
  // The second tier does the same from memory that is no device's.
  q.tier_memory = 64ull << 30;
  const FitAnswer tier = asked(q);
  REQUIRE(tier.fit);
  CHECK(tier.fit->survival->at_once.size() == 4);
}

TEST_CASE("a loss that leaves no room is told") {
  const ModelSpec spec = published("qwen3-30b-a3b");
  const FitAnswer answer = asked(question(spec, "2:40GiB", 4096));
  REQUIRE(answer.fit);
  CHECK(answer.fit->survival->not_at_all.size() == 2);
}

/// Every remedy, when it is taken, makes it fit.
void take(FitQuestion q, const Remedy& remedy) {
  CAPTURE(remedy.flag);
  CAPTURE(remedy.value);
  if (remedy.flag == "--nodes") {
    q.nodes = must(parse_nodes(remedy.value));
  } else if (remedy.flag == "--max-model-len") {
    q.engine.max_model_len = std::stoll(remedy.value);
  } else if (remedy.flag == "--kv-cache-dtype") {
    q.engine.numerics = Numerics::kBf16KvFp8;
  } else {
    FAIL("unexpected");
  }
  CHECK(asked(q).fit);
}

TEST_CASE("what does not fit is told with what would") {
  struct Case {
    const char* name;
    const char* nodes;
    std::int64_t length;
    const char* flag;
    const char* value;
  };
  const Case cases[] = {
      {"deepseek-v3", "1x8:h100-80g", 4096, "--nodes", "2x8:h100-80g"},
      {"llama-3.1-8b", "1:18GiB", 131072, "--max-model-len", ""},
      {"llama-3.1-8b", "1:8GiB", 4096, "--nodes", "3:8GiB"},
  };
  for (const Case& c : cases) {
    const ModelSpec spec = published(c.name);
    const FitQuestion q = question(spec, c.nodes, c.length);
    const FitAnswer answer = asked(q);
    CAPTURE(std::string(c.name));
    REQUIRE(!answer.fit);
    CHECK(std::any_of(answer.remedies.begin(), answer.remedies.end(), [&](const Remedy& r) {
      return r.flag == c.flag && (std::string(c.value).empty() || r.value == c.value);
    }));
    for (const Remedy& remedy : answer.remedies) take(q, remedy);
  }
}

TEST_CASE("the cache that is proposed is the nearest to what was asked for") {
  const ModelSpec spec = published("llama-3.1-70b");
  struct Case {
    std::uint64_t asked;  ///< GiB
    std::int32_t stages;  ///< 0: nobody has said
    bool more;            ///< is proposed
  };
  // A sequence of 131,072 tokens takes 10.5 GiB where 21 of the 80 layers are.
  for (const Case& c : {Case{1, 0, true},
                        {1, 4, true},
                        {20, 0, false},
                        {20, 4, false},
                        {20, 8, false},
                        {5, 8, true}}) {
    FitQuestion q = question(spec, "4:48GiB");
    q.engine.kv_cache_memory = c.asked << 30;
    q.choose_pipeline = c.stages == 0;
    if (c.stages > 0) q.engine.pipeline_parallel_size = c.stages;
    CAPTURE(c.asked);
    CAPTURE(c.stages);
    const FitAnswer answer = asked(q);
    REQUIRE(!answer.fit);
    // It is not asked for more devices because a cache is set too small for one sequence.
    const auto offers = [&](const char* flag) {
      return std::find_if(answer.remedies.begin(), answer.remedies.end(),
                          [&](const Remedy& r) { return r.flag == flag; });
    };
    CHECK((offers("--nodes") == answer.remedies.end()) == c.more);
    const auto offered = offers("--kv-cache-memory");
    REQUIRE(offered != answer.remedies.end());
    const std::uint64_t bytes = must(parse_byte_size(offered->value));
    CHECK((bytes > q.engine.kv_cache_memory) == c.more);
    q.engine.kv_cache_memory = bytes;
    CHECK(asked(q).fit);
    q.engine.kv_cache_memory = c.more ? bytes - (1u << 20) : bytes + (1u << 20);
    CHECK(!asked(q).fit);
  }
}

TEST_CASE("stages of several lengths fill the memory of the fullest device") {
  const ModelSpec spec = published("deepseek-v3");
  const FitAnswer answer = asked(question(spec, "1x32:a100-40g"));
  REQUIRE(answer.fit);
  CHECK(answer.fit->engine.pipeline_parallel_size == 2);
  std::uint64_t left = 1ull << 40;
  for (const DeviceFit& d : answer.fit->devices) left = std::min(left, d.memory - d.total());
  CHECK(left < 64ull << 20);
}

TEST_CASE("a cache that leaves no room for computing is made smaller") {
  const ModelSpec spec = published("llama-3.1-8b");
  FitQuestion q = question(spec, "1x1:h100-80g", 8192);
  q.engine.max_num_seqs = 4096;
  q.engine.max_num_batched_tokens = 32768;
  const FitAnswer answer = asked(q);
  CAPTURE(answer.trouble);
  REQUIRE(answer.fit);
  const DeviceFit& device = answer.fit->devices[0];
  CHECK(device.total() <= device.memory);
  CHECK(device.memory - device.total() < 64ull << 20);
  CHECK(device.use.total() < plannable_bytes(device.memory));
}

TEST_CASE("a cache is chosen that leaves room for what a lost node held") {
  const ModelSpec spec = published("qwen3-30b-a3b");
  FitQuestion q = question(spec, "3x1:a100-40g", 8192);
  q.engine.max_num_seqs = 4096;
  q.choose_redundant = false;
  const FitAnswer chosen = asked(q);
  REQUIRE(chosen.fit);
  CHECK(chosen.fit->engine.kv_cache_memory > 0);
  CHECK(chosen.fit->survival->not_at_all.empty());
  // Who says how large it is gets that, and what it means.
  q.engine.kv_cache_memory = 4 * chosen.fit->engine.kv_cache_memory;
  const FitAnswer given = asked(q);
  if (given.fit) {
    CHECK(given.fit->engine.kv_cache_memory == q.engine.kv_cache_memory);
    CHECK(given.fit->survival->not_at_all.size() == 3);
  }
}

TEST_CASE("a small device's cache is no reason to choose none, nor to plan a replica less") {
  const ModelSpec spec = published("qwen3-30b-a3b");
  for (const std::int32_t replicas : {0, 3}) {
    FitQuestion q = question(spec, "2x1:h100-80g,1x1:a100-40g", 8192);
    q.engine.max_num_seqs = 4096;
    q.engine.data_parallel_size = replicas;
    q.choose_redundant = false;
    const FitAnswer chosen = asked(q);
    REQUIRE(chosen.fit);
    CHECK(chosen.fit->engine.kv_cache_memory > 0);
    CHECK(chosen.fit->survival->not_at_all.empty());
    CHECK(chosen.fit->placement.replicas.size() == 3);
  }
}

TEST_CASE("small devices beside large ones") {
  const ModelSpec spec = published("qwen3-30b-a3b");
  CHECK(fits(spec, "1:96GiB,3:4GiB", 4096));
  CHECK(!fits(spec, "3:4GiB", 4096));
}

}  // namespace
}  // namespace troupe
