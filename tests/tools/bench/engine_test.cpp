#include "tools/troupe/bench/engine.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

namespace troupe::bench {
namespace {

TEST_CASE("throughput has vLLM's keys and lines") {
  const EngineRun run{2.0, 4, 100, 60};
  const nlohmann::json json = throughput_json(run);
  CHECK(json == nlohmann::json::parse(R"({"elapsed_time": 2.0, "num_requests": 4,
      "total_num_tokens": 160, "requests_per_second": 2.0, "tokens_per_second": 80.0})"));
  CHECK(throughput_text(run) ==
        "Throughput: 2.00 requests/s, 80.00 total tokens/s, 30.00 output tokens/s\n"
        "Total num prompt tokens:  100\n"
        "Total num output tokens:  60\n");
}

TEST_CASE("latency has vLLM's keys and lines, percentiles as numpy has them") {
  const std::vector<double> latencies{0.5, 0.1, 0.3};
  const nlohmann::json json = latency_json(latencies);
  CHECK(json["avg_latency"].get<double>() == doctest::Approx(0.3));
  CHECK(json["latencies"] == nlohmann::json(latencies));
  CHECK(json["percentiles"].size() == 6);
  CHECK(json["percentiles"]["10"].get<double>() == doctest::Approx(0.14));
  CHECK(json["percentiles"]["50"].get<double>() == doctest::Approx(0.3));
  CHECK(json["percentiles"]["99"].get<double>() == doctest::Approx(0.496));
  const std::string text = latency_text(latencies);
  CHECK(text.starts_with("Avg latency: 0.300000 seconds\n10% percentile latency: 0.14"));
  CHECK(text.ends_with("99% percentile latency: 0.496000 seconds\n"));
}

}  // namespace
}  // namespace troupe::bench
