// Files of measured speeds, and measuring itself.

#include "tools/troupe/plan/measured.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/tools/plan/questions.h"
#include "tools/troupe/plan/measure_machine.h"

namespace troupe {
namespace {

using testing::must;
using testing::published;

constexpr const char* kFile = R"({
  "device": "cpu", "memory_bandwidth": 5e10, "compute": {"bf16": 2e11}, "network": 1e9,
  "attention_one": {"rate": 4e10, "more_positions": 30}, "attention_prompt": {"rate": 1e11},
  "call_s": 2e-6,
  "products": [{"codes": "fp8", "points": [{"rows": 1, "element_s": 3e-11},
                                           {"rows": 32, "element_s": 4e-10}]},
               {"codes": "bf16", "full_precision": true,
                "points": [{"rows": 1, "element_s": 5e-11}]}]
})";

TEST_CASE("a file of measured speeds is read, and written back the same") {
  const MeasuredDevice read = must(parse_measured(kFile, "FILE"));
  const DeviceSpeed& d = read.device_speed;
  CHECK(read.device == "cpu");
  CHECK(d.ceilings.memory == 5e10);
  CHECK(d.ceilings.fma == 2e11);  // where nothing else is said
  CHECK(d.ceilings.network == 1e9);
  CHECK(d.efficiency.call_s == 2e-6);
  CHECK(d.attention_one == AttentionSpeed{4e10, 30});
  CHECK(d.attention_batch.rate == 0);
  REQUIRE(d.products.size() == 2);
  CHECK(d.products[0].points[1].element_s == 4e-10);
  CHECK(d.products[1].kind == ProductKind{kernels::Codes::kBf16, true});
  const MeasuredDevice again = must(parse_measured(to_json(read).dump(), "FILE"));
  CHECK(again.device_speed == d);
  // As a whole report of --json has it.
  const nlohmann::ordered_json report = {{"fits", true}, {"measured", to_json(read)}};
  CHECK(must(parse_measured(report.dump(), "FILE")).device_speed == d);
}

TEST_CASE("what is no report of speeds is refused, and the key is named") {
  struct Case {
    const char* from;
    const char* to;
    const char* named;
  };
  for (const Case& c : {Case{"5e10", "0", "memory_bandwidth"},
                        {"5e10", "-1", "memory_bandwidth"},
                        {"5e10", "1e30", "memory_bandwidth"},
                        {"5e10", "\"fast\"", "memory_bandwidth"},
                        {"2e11", "1", "bf16"},
                        {"{\"bf16\": 2e11}", "2e11", "compute"},
                        {"\"cpu\"", "\"h100\"", "h100-80g"},
                        {"\"fp8\"", "\"fp7\"", "codes"},
                        {"\"rows\": 32", "\"rows\": 1", "rows"},
                        {"3e-11", "0", "element_s"},
                        {"2e-6", "-1", "call_s"},
                        {"4e10", "0", "rate"},
                        {": 30", ": -1", "more_positions"},
                        {"{\"rate\": 1e11}", "1e11", "attention_prompt"},
                        {"[{\"rows\": 1, \"element_s\": 5e-11}]", "[]", "points"},
                        {"[{\"rows\": 1, \"element_s\": 5e-11}]", "[1]", "points"}}) {
    std::string text = kFile;
    const auto at = text.find(c.from);
    REQUIRE(at != std::string::npos);
    text.replace(at, std::string(c.from).size(), c.to);
    CAPTURE(text);
    const auto read = parse_measured(text, "FILE");
    REQUIRE(!read.ok());
    CHECK(read.error().message.find(c.named) != std::string::npos);
    CHECK(read.error().message.find("FILE") != std::string::npos);
  }
  CHECK(!parse_measured("", "FILE").ok());
  CHECK(!parse_measured("[]", "FILE").ok());
  CHECK(!parse_measured("{}", "FILE").ok());
}

TEST_CASE("this machine is measured with what the model has") {
  const ModelSpec spec = published("qwen3-0.6b");
  const CpuFamily family = supported_cpu_families().back();
  const Numerics numerics = family == CpuFamily::kBaseline ? Numerics::kReference : Numerics::kBf16;
  const MeasuredDevice measured = must(measure_machine(spec, numerics, 1));
  const DeviceSpeed& d = measured.device_speed;
  CHECK(d.ceilings.memory > 1e8);
  CHECK(d.ceilings.memory < 1e13);
  CHECK(d.ceilings.bf16 > 1e8);
  CHECK(d.attention_one.rate > 0);
  CHECK(d.attention_batch.rate > 0);
  CHECK(d.attention_prompt.rate > 0);
  REQUIRE(d.products.size() == 1);  // all of it is bf16
  double last = 0;
  for (const auto& point : d.products[0].points) {
    // More rows take longer; noise is not that large.
    CHECK(point.element_s * 2 > last);
    last = point.element_s;
  }
  CHECK(must(parse_measured(to_json(measured).dump(), "FILE")).device_speed.products.size() == 1);
  if (family == CpuFamily::kAvx2) CHECK(!measure_machine(spec, Numerics::kAvx512Bf16, 1).ok());
}

}  // namespace
}  // namespace troupe
