#include "tools/troupe/bench/compare.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace troupe::bench {
namespace {

using Json = nlohmann::ordered_json;

/// What vLLM writes, as far as it matters.
Json result(double tokens_per_s, double ttft_ms) {
  return {{"backend", "vllm"},
          {"model_id", "m"},
          {"tokenizer_id", "m"},
          {"num_prompts", 10},
          {"request_rate", "inf"},
          {"burstiness", 1.0},
          {"max_concurrency", nullptr},
          {"duration", 2.5},
          {"completed", 10},
          {"total_input_tokens", 1000},
          {"total_output_tokens", 500},
          {"request_throughput", 4.0},
          {"request_goodput", nullptr},
          {"output_throughput", tokens_per_s},
          {"total_token_throughput", 2 * tokens_per_s},
          {"mean_ttft_ms", ttft_ms},
          {"std_ttft_ms", 1.0},
          {"p99.9_ttft_ms", 3 * ttft_ms},
          {"p99_ttft_ms", 2 * ttft_ms},
          {"median_ttft_ms", ttft_ms},
          {"ttfts", {0.1, 0.2}}};
}

Json at(Json of, std::uint64_t concurrency) {
  of["max_concurrency"] = concurrency;
  return of;
}

NamedResults results(const std::string& file, const std::string& text) {
  auto points = parse_results(text, file);
  REQUIRE_MESSAGE(points.ok(), points.error().message);
  return {file, std::move(*points)};
}

TEST_CASE("two results are compared figure by figure, in the order of a report") {
  const auto both =
      compare(results("a.json", result(100, 50).dump()), results("b.json", result(200, 75).dump()));
  REQUIRE(both.ok());
  CHECK(both->settings.empty());
  REQUIRE(both->points.size() == 1);
  std::vector<std::string> keys;
  for (const ComparedFigure& figure : both->points[0].figures) keys.push_back(figure.key);
  CHECK(keys == std::vector<std::string>{"request_throughput", "output_throughput",
                                         "total_token_throughput", "mean_ttft_ms", "median_ttft_ms",
                                         "p99_ttft_ms", "p99.9_ttft_ms"});
  const std::string text = comparison_text(*both);
  for (const char* line : {
           "A: a.json\nB: b.json\n",
           "Request throughput (req/s)                 4.00         4.00     1.00  same\n",
           "Output token throughput (tok/s)          100.00       200.00     2.00  better (higher "
           "is "
           "better)\n",
           "P99.9 TTFT (ms)                          150.00       225.00     1.50  worse (lower is "
           "better)\n",
       })
    CHECK_MESSAGE(text.find(line) != text.npos, text);
  CHECK(text.find("settings") == text.npos);
  const Json json = comparison_json(*both);
  CHECK(json["points"][0]["metrics"]["mean_ttft_ms"]["ratio"] == 1.5);
  CHECK(json["points"][0]["metrics"]["mean_ttft_ms"]["better"] == "lower");
  CHECK(json["points"][0]["request_rate"] == "inf");
  CHECK(json["points"][0]["max_concurrency"].is_null());
}

TEST_CASE("settings that differ are named, and what one does not have stays open") {
  Json other = at(result(100, 50), 8);
  other["num_prompts"] = 20;
  other["completed"] = 20;
  other["total_input_tokens"] = 2010;  // within what random lengths come to
  other["request_rate"] = 4;
  other["seed"] = 3;  // the first does not tell its own
  other["failed"] = 2;
  other["mean_tpot_ms"] = 0;  // of nothing
  const auto both =
      compare(results("a.json", result(100, 50).dump()), results("b.json", other.dump()));
  REQUIRE(both.ok());
  CHECK(both->settings == std::vector<Setting>{{"num_prompts", "10", "20"},
                                               {"request_rate", "inf", "4"},
                                               {"max_concurrency", "none", "8"},
                                               {"output tokens a request", "50", "25"}});
  const std::string text = comparison_text(*both);
  CHECK(
      text.find("These settings differ: num_prompts (10 in A, 20 in B), request_rate (inf in A, 4 "
                "in B), max_concurrency") != text.npos);
  CHECK(text.find("Failed requests                               -            2        -\n") !=
        text.npos);
  CHECK(text.find("TPOT") == text.npos);
  CHECK(comparison_json(*both)["points"][0]["metrics"]["failed"]["ratio"].is_null());
}

TEST_CASE("points of lists go together by what they differ in") {
  const Json a = {at(result(1, 1), 1), at(result(2, 1), 2), at(result(4, 1), 4)};
  const Json b = {at(result(9, 1), 8), at(result(8, 1), 4), at(result(4, 1), 2)};
  const auto both = compare(results("a", a.dump()), results("b", b.dump()));
  REQUIRE(both.ok());
  REQUIRE(both->points.size() == 2);
  CHECK(both->points[0].label == "concurrency 2");
  CHECK(both->points[1].figures[1].ratio() == 2);
  CHECK(both->only_a == std::vector<std::string>{"concurrency 1"});
  CHECK(both->only_b == std::vector<std::string>{"concurrency 8"});
  CHECK(comparison_text(*both).find("Only in A: concurrency 1.\n") != std::string::npos);
  // One of a list with one result; results a line, as vLLM appends them.
  CHECK(compare(results("a", a[2].dump()), results("b", b.dump()))->points.size() == 1);
  CHECK(compare(results("a", "\n" + a[0].dump() + "\n" + a[1].dump()), results("b", b.dump()))
            ->points.size() == 1);
  // Runs again and again go together in their order.
  const Json twice = {result(1, 1), result(2, 1)};
  const auto again = compare(results("a", twice.dump()), results("b", twice.dump()));
  REQUIRE(again->points.size() == 2);
  CHECK(again->points[1].figures[1].ratio() == 1);
  Json by_rate = {result(1, 1), result(2, 1)};
  by_rate[0]["request_rate"] = 0.5;
  by_rate[1]["request_rate"] = 8.0;
  CHECK(compare(results("a", by_rate.dump()), results("b", by_rate.dump()))->points[0].label ==
        "0.5 req/s");
  const auto none = compare(results("a", a.dump()), results("b", at(result(1, 1), 64).dump()));
  REQUIRE(!none.ok());
  CHECK(none.error().message.find("'b' has concurrency 64") != std::string::npos);
}

TEST_CASE("what is no result is told with what it lacks") {
  Json half = result(1, 1);
  half.erase("duration");
  half["output_throughput"] = "fast";
  for (const auto& [text, told] : {
           std::pair{std::string("{"), "'f.json' is no result of a benchmark: it is no JSON."},
           {"", "it has no points."},
           {"[]", "it has no points."},
           {"7", "it is no JSON object."},
           {"[" + result(1, 1).dump() + ",null]", "its point 2 is no JSON object."},
           {half.dump(), ": it lacks 'duration', 'output_throughput'."},
           {R"({"elapsed_time": 1, "tokens_per_second": 2})",
            "it lacks 'completed', 'duration', 'request_throughput', 'output_throughput'."},
       }) {
    const auto parsed = parse_results(text, "f.json");
    REQUIRE(!parsed.ok());
    CHECK_MESSAGE(parsed.error().message.find(told) != std::string::npos, parsed.error().message);
  }
  CHECK(!parse_results(std::string(100'000, '['), "f").ok());
}

TEST_CASE("words of a file do not reach the terminal as they are") {
  Json hostile = result(1, 1);
  hostile["model_id"] = "\x1b[31m" + std::string(1000, 'm');
  hostile["p1e_ttft_ms"] = 1;
  hostile["p_ttft_ms"] = 1;
  hostile["p101_ttft_ms"] = 1;
  const auto both = compare(results("a\x1b", result(1, 1).dump()), results("b", hostile.dump()));
  REQUIRE(both.ok());
  const std::string text = comparison_text(*both);
  CHECK(text.find('\x1b') == text.npos);
  CHECK(text.size() < 2000);
  CHECK(both->points[0].figures.size() == 7);
}

}  // namespace
}  // namespace troupe::bench
