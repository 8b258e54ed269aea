// What `troupe plan` prints.

#include "tools/troupe/plan/report.h"

#include <doctest/doctest.h>

#include "tests/tools/plan/questions.h"

namespace troupe {
namespace {

using testing::must;
using testing::published;
using testing::question;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("a report of what fits") {
  const ModelSpec spec = published("qwen3-30b-a3b");
  FitQuestion q = question(spec, "4:64GiB", 8192);
  const FitAnswer answer = must(find_fit(q));
  const std::string text = report_text(q, answer, "DIR");
  CAPTURE(text);
  CHECK(has(text, "It fits."));
  CHECK(has(text, "on 4:64GiB"));
  CHECK(has(text, "256 copies, 64 on a device"));
  CHECK(has(text, "requests go on at once"));
  CHECK(has(text, "troupe head --model DIR --min-devices 4 --redundant-experts 128 "
                  "--max-model-len 8192\n"));
  const auto json = report_json(q, answer);
  CHECK(json["fits"] == true);
  CHECK(json["layout"]["expert_slots_per_device"] == nlohmann::json({64, 64}));
  CHECK(json["node_loss"]["at_once"].size() == 4);
  REQUIRE(json["devices"].size() == 4);
  for (const char* part : {"shard_bytes", "expert_bytes", "spare_bytes", "kv_bytes",
                           "scratch_bytes", "free_bytes", "memory_bytes"}) {
    std::uint64_t bytes = 0;
    for (const auto& device : json["devices"]) bytes += device[part].get<std::uint64_t>();
    CHECK(json["memory"][part] == bytes);
  }
  for (const auto& d : json["devices"])
    CHECK(d["shard_bytes"].get<std::uint64_t>() + d["expert_bytes"].get<std::uint64_t>() +
              d["kv_bytes"].get<std::uint64_t>() + d["scratch_bytes"].get<std::uint64_t>() +
              d["free_bytes"].get<std::uint64_t>() ==
          d["memory_bytes"]);
}

TEST_CASE("a report of what does not fit") {
  const ModelSpec spec = published("deepseek-v3");
  const FitQuestion q = question(spec, "1x8:h100-80g", 4096);
  const FitAnswer answer = must(find_fit(q));
  const std::string text = report_text(q, answer, "DIR");
  CAPTURE(text);
  CHECK(has(text, "It does not fit."));
  CHECK(has(text, "are missing"));
  CHECK(has(text, "--nodes 2x8:h100-80g"));
  const auto json = report_json(q, answer);
  CHECK(json["fits"] == false);
  CHECK(json["needed_bytes"] > json["plannable_bytes"]);
  CHECK(!json["remedies"].empty());
}

TEST_CASE("who plans for GPUs is told that no cluster of them was measured") {
  const ModelSpec spec = published("qwen3-30b-a3b");
  struct Case {
    const char* nodes;
    bool told;
  };
  for (const Case& c : {Case{"4:64GiB", false}, Case{"2x8:h100-80g", true}, Case{"1:4GiB", false},
                        Case{"4:64GiB,1:h100-80g", true}, Case{"1:l4-24g", true}}) {
    CAPTURE(std::string(c.nodes));
    const FitQuestion q = question(spec, c.nodes, 8192);
    const FitAnswer answer = must(find_fit(q));
    CHECK(has(report_text(q, answer, "DIR"), "No cluster of GPUs has been measured") == c.told);
    CHECK(report_json(q, answer).contains("warning") == c.told);
  }
}

}  // namespace
}  // namespace troupe
