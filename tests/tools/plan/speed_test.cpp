// How fast published models would be on known clusters.

#include "tools/troupe/plan/speed.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/tools/plan/questions.h"
#include "tools/troupe/plan/device_kinds.h"
#include "tools/troupe/plan/speed_report.h"

namespace troupe {
namespace {

using testing::must;
using testing::published;
using testing::question;

/// Data sheets where they have the name, else a made-up processor.
SpeedQuestion speeds_of(const FitQuestion& q, Arithmetic arithmetic = Arithmetic::kFp8) {
  SpeedQuestion speed;
  for (const NodeGroup& group : q.nodes) {
    GroupSpeed g;
    g.source = "data sheet";
    g.device_speed.arithmetic = arithmetic;
    if (const DeviceKind* kind = find_device_kind(group.device))
      g.device_speed.ceilings = kind->ceilings;
    else
      g.device_speed.ceilings = {200e9, 4e12, 4e12, 0, 12e9, 0};
    speed.groups.push_back(g);
  }
  return speed;
}

SpeedAnswer asked(const FitQuestion& q, const SpeedQuestion& speed) {
  REQUIRE(check_speed(q, speed).ok());
  const FitAnswer fit = must(find_fit(q));
  REQUIRE(fit.fit);
  return must(find_speed(q, *fit.fit, speed));
}

TEST_CASE("DeepSeek-V3 on two nodes of eight H100") {
  const ModelSpec spec = published("deepseek-v3");
  const FitQuestion q = question(spec, "2x8:h100-80g", 32768);
  const SpeedAnswer answer = asked(q, speeds_of(q));
  CHECK(answer.context == 4096);
  CHECK(answer.missing.empty());
  REQUIRE(answer.decode.size() == 3);
  CHECK(answer.decode[0].rows == 1);
  CHECK(answer.decode[1].rows == 32);
  CHECK(answer.decode[2].rows == answer.sequences_max);
  CHECK(answer.cache_limits);
  CHECK(answer.decode[0].limit == Limit::kMemory);
  // Estimated by hand for EP16 with 32 sequences a GPU: some 38 ms a step, 830 tokens/s a GPU.
  CHECK(answer.decode[1].round.seconds() == doctest::Approx(0.038).epsilon(0.15));
  CHECK(answer.decode[1].tokens_per_s() / 16 == doctest::Approx(830).epsilon(0.15));
  CHECK(answer.imbalance == doctest::Approx(1));
  double last = 0;
  for (const StepSpeed& s : answer.decode) {
    CHECK(s.tokens_per_s() < s.tokens_per_s_max());
    CHECK(s.tokens_per_s() > last);
    last = s.tokens_per_s();
  }
  // Without tensor cores, as `bf16` is defined, arithmetic binds early.
  const SpeedAnswer fma = asked(q, speeds_of(q, Arithmetic::kFma));
  CHECK(fma.decode[1].limit == Limit::kCompute);
  CHECK(fma.decode[1].tokens_per_s() < answer.decode[1].tokens_per_s() / 2);
  REQUIRE(!fma.changes.empty());
  CHECK(fma.changes[0].what.find("--numerics cuda_mma") != std::string::npos);
}

TEST_CASE("both published units have a speed, and skew costs some of it") {
  const ModelSpec spec = published("deepseek-v3");
  for (const auto& [nodes, devices] : {std::pair{"4x8:h100-80g", 32}, {"18x8:h100-80g", 144}}) {
    FitQuestion q = question(spec, nodes, 8192);
    q.engine.redundant_experts = 32;
    q.engine.data_parallel_size = devices;
    q.choose_redundant = q.choose_pipeline = false;
    SpeedQuestion speed = speeds_of(q);
    const SpeedAnswer even = asked(q, speed);
    speed.skew = 8;
    const SpeedAnswer skewed = asked(q, speed);
    CAPTURE(std::string(nodes));
    CHECK(even.skew == doctest::Approx(1));
    CHECK(even.imbalance < 1.2);  // 32 of the 256 experts have two copies
    CHECK(skewed.skew == doctest::Approx(8));
    CHECK(skewed.imbalance > even.imbalance);
    CHECK(skewed.prefill.tokens_per_s() < even.prefill.tokens_per_s());
    // The busiest device of 144 has an expert with 8 / 4 or more of the mean.
    if (devices == 144) CHECK(skewed.imbalance > 1.2);
    // Loads that were counted say the same as the skew that made them.
    SpeedQuestion counted = speeds_of(q);
    for (std::int32_t layer = 3; layer < 61; ++layer)
      counted.loads[layer] = chances_of_skew(256, 8, 8, layer * 37);
    CHECK(asked(q, counted).decode[0].tokens_per_s() ==
          doctest::Approx(skewed.decode[0].tokens_per_s()));
  }
}

TEST_CASE("stages of a pipeline share the sequences out") {
  const ModelSpec spec = published("llama-3.1-70b");
  FitQuestion q = question(spec, "1x2:h100-80g", 8192);
  SpeedQuestion speed = speeds_of(q);
  speed.context = 256;
  const SpeedAnswer two = asked(q, speed);
  // One sequence is never in two steps: it goes through both devices, one after the other.
  const double bytes = 2 * 69.5e9;
  CHECK(two.decode[0].tokens_per_s_max() == doctest::Approx(3.35e12 / bytes).epsilon(0.02));
  REQUIRE(two.decode[1].rows == 32);
  CHECK(two.decode[1].tokens_per_s_max() > 32 * 0.9 * two.decode[0].tokens_per_s_max());
}

TEST_CASE("what is asked is checked") {
  const ModelSpec spec = published("deepseek-v3");
  const FitQuestion q = question(spec, "2x8:h100-80g", 8192);
  struct Case {
    std::int64_t context;
    double skew;
    const char* named;
  };
  for (const Case& c : {Case{8193, 1, "--context must be from 1 to 8192"},
                        {-1, 1, "--context"},
                        {0, 0.99, "--skew must be from 1"},
                        {0, 0, "--skew"},
                        {0, 32.1, "to 32.00"},
                        {0, std::numeric_limits<double>::quiet_NaN(), "--skew"}}) {
    SpeedQuestion speed = speeds_of(q);
    speed.context = c.context;
    speed.skew = c.skew;
    const Status checked = check_speed(q, speed);
    REQUIRE(!checked.ok());
    CHECK(checked.error().code == ErrorCode::kInvalidArgument);
    CHECK(checked.error().message.find(c.named) != std::string::npos);
  }
  SpeedQuestion speed = speeds_of(q);
  for (const auto& [layer, size] : {std::pair{0, 256}, {3, 255}, {61, 256}, {-1, 256}}) {
    speed.loads = {{layer, std::vector<double>(static_cast<std::size_t>(size), 1.0)}};
    CHECK(!check_speed(q, speed).ok());
  }
  const ModelSpec dense = published("llama-3.1-8b");
  const FitQuestion without = question(dense, "1:h100-80g", 8192);
  SpeedQuestion skewed = speeds_of(without);
  skewed.skew = 2;
  CHECK(check_speed(without, skewed).error().message.find("no experts") != std::string::npos);
}

TEST_CASE("of devices that nobody knows nothing is said but what to give") {
  const ModelSpec spec = published("qwen3-30b-a3b");
  const FitQuestion q = question(spec, "4:64GiB", 8192);
  SpeedQuestion speed = speeds_of(q);
  speed.groups[0] = {};
  const SpeedAnswer answer = asked(q, speed);
  CHECK(answer.missing.find("--memory-bandwidth") != std::string::npos);
  CHECK(answer.decode.empty());
  CHECK(speed_text(q, speed, answer) == answer.missing + "\n");
  CHECK(speed_json(q, speed, answer)["missing"] == answer.missing);
}

TEST_CASE("the report says what binds, what would help, and with what it was counted") {
  const ModelSpec spec = published("qwen3-30b-a3b");
  const FitQuestion q = question(spec, "4:64GiB", 8192);
  SpeedQuestion speed = speeds_of(q);
  speed.context = 2048;
  speed.skew = 3;
  const SpeedAnswer answer = asked(q, speed);
  const std::string text = speed_text(q, speed, answer);
  CAPTURE(text);
  for (const char* part :
       {"2,048 tokens of context", "limit", "memory", "Prompts: at most", "3.00 times as often",
        "What would help", "200 GB/s of memory", "data sheet", "80 % of memory"})
    CHECK(text.find(part) != std::string::npos);
  const auto json = speed_json(q, speed, answer);
  CHECK(json["context"] == 2048);
  CHECK(json["expert_skew"].get<double>() == doctest::Approx(3));
  CHECK(json["decode"].size() == answer.decode.size());
  const auto& step = json["decode"][0];
  CHECK(step["least"]["memory_s"].get<double>() > 0);
  CHECK(step["expected"]["tokens_per_s"] == answer.decode[0].tokens_per_s());
  CHECK(step["busiest_device"]["wire_bytes"]["network_out"].get<double>() > 0);
  CHECK(json["prefill"]["per_1000_tokens"]["operations"].get<double>() > 1e12);
  CHECK(json["devices"][0]["efficiency"]["memory"] == 0.8);
  // Who has not said how fast the network is learns that it was left out.
  speed.groups[0].device_speed.ceilings.network = 0;
  CHECK(speed_text(q, speed, asked(q, speed)).find("--network") != std::string::npos);
}

}  // namespace
}  // namespace troupe
