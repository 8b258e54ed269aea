#include "model/placement/eplb.h"

#include <doctest/doctest.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "model/placement/float_sum.h"
#include "tests/source_path.h"

namespace troupe {
namespace {

EplbInput small() {
  EplbInput in;
  in.weight = {{90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86}};
  in.num_replicas = 16;
  in.num_groups = 4;
  in.num_nodes = 2;
  in.num_gpus = 8;
  return in;
}

TEST_CASE("plans equal the published ones number for number") {
  std::ifstream file(testing::source_path("tests/golden/eplb/cases.json"));
  const auto cases = nlohmann::json::parse(file);
  REQUIRE(cases.size() == 4);
  for (const auto& c : cases) {
    EplbInput in;
    in.weight = c.at("weight").get<std::vector<std::vector<float>>>();
    in.num_replicas = c.at("num_replicas");
    in.num_groups = c.at("num_groups");
    in.num_nodes = c.at("num_nodes");
    in.num_gpus = c.at("num_gpus");
    CAPTURE(in.num_gpus);
    const auto plan = rebalance_experts(in);
    REQUIRE(plan.ok());
    // In brackets of their own: thousands of numbers say nothing when they are printed.
    CHECK((nlohmann::json(plan->phy2log) == c.at("phy2log")));
    CHECK((nlohmann::json(plan->logcnt) == c.at("logcnt")));
    CHECK((nlohmann::json(plan->log2phy) == c.at("log2phy")));
  }
}

TEST_CASE("equal weights: the first of equals, everywhere") {
  EplbInput in{{{0, 0, 0, 0}}, 6, 1, 1, 2};
  const auto plan = rebalance_experts(in);
  REQUIRE(plan.ok());
  CHECK(plan->logcnt[0] == std::vector<std::int32_t>{3, 1, 1, 1});
  CHECK(plan->phy2log[0] == std::vector<std::int32_t>{0, 1, 2, 3, 0, 0});
  CHECK(plan->log2phy[0][0] == std::vector<std::int32_t>{0, 4, 5});
  CHECK(plan->log2phy[0][1] == std::vector<std::int32_t>{1, -1, -1});
}

TEST_CASE("input that makes no plan is refused with the reason") {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const struct {
    void (*spoil)(EplbInput&, float);
    float value;
    const char* named;
  } cases[] = {
      {[](EplbInput& in, float v) { in.weight[0][3] = v; }, -1, "expert 3"},
      {[](EplbInput& in, float v) { in.weight[0][3] = v; }, nan, "expert 3"},
      {[](EplbInput& in, float v) { in.weight[0][11] = v; }, inf, "expert 11"},
      {[](EplbInput& in, float) { in.weight.clear(); }, 0, "at least one layer"},
      {[](EplbInput& in, float) { in.weight = {{}}; }, 0, "at least one layer"},
      {[](EplbInput& in, float) {
         in.weight.push_back({1, 2});
       },
       0, "Row 1"},
      {[](EplbInput& in, float) { in.num_replicas = 11; }, 0, "num_replicas"},
      {[](EplbInput& in, float) { in.num_replicas = 18; }, 0, "num_gpus"},
      {[](EplbInput& in, float) { in.num_replicas = 1ll << 60; }, 0, "num_replicas"},
      {[](EplbInput& in, float) { in.num_replicas = -16; }, 0, "num_replicas"},
      {[](EplbInput& in, float) { in.num_gpus = 0; }, 0, "num_gpus"},
      {[](EplbInput& in, float) { in.num_nodes = 0; }, 0, "num_nodes"},
      {[](EplbInput& in, float) { in.num_groups = 0; }, 0, "num_groups"},
      {[](EplbInput& in, float) { in.num_groups = 8; }, 0, "num_groups"},
      {[](EplbInput& in, float) { in.num_gpus = 1; }, 0, "num_nodes"},
      {[](EplbInput& in, float) { in.num_gpus = std::numeric_limits<std::int64_t>::max(); }, 0,
       "num_gpus"},
  };
  for (const auto& c : cases) {
    EplbInput in = small();
    c.spoil(in, c.value);
    const auto plan = rebalance_experts(in);
    REQUIRE(!plan.ok());
    CHECK(plan.error().code == ErrorCode::kInvalidArgument);
    CAPTURE(plan.error().message);
    CHECK(plan.error().message.find(c.named) != std::string::npos);
  }
}

TEST_CASE("a table that would be absurd is refused, not allocated") {
  EplbInput in;
  in.weight.assign(1, std::vector<float>(2000, 0));
  in.weight[0][7] = 1;
  in.num_replicas = 40'000;
  in.num_groups = in.num_nodes = in.num_gpus = 1;
  CHECK(!rebalance_experts(in).ok());
  in.num_replicas = 4'000;
  CHECK(rebalance_experts(in).ok());
}

TEST_CASE("sums of whole numbers are exact, and the order of additions is PyTorch's") {
  std::vector<float> counts(1000);
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = static_cast<float>(i);
  for (const std::size_t n : {1u, 3u, 7u, 8u, 9u, 31u, 32u, 33u, 500u, 511u, 512u, 520u, 1000u})
    CHECK(pytorch_sum(counts.data(), n) == static_cast<float>(n * (n - 1) / 2));
  // 8 lanes: 2^24 and a 1 that comes after it in the same lane loses, in another lane it waits.
  std::vector<float> values(16, 0);
  values[0] = 16777216.0f;
  values[8] = 1;
  CHECK(pytorch_sum(values.data(), 16) == 16777216.0f);
  values[8] = 0;
  values[1] = values[9] = 1;
  CHECK(pytorch_sum(values.data(), 16) == 16777218.0f);
}

}  // namespace
}  // namespace troupe
