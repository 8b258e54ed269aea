#include "actors/metrics/metrics.h"

#include <doctest/doctest.h>

#include <string>

namespace troupe {
namespace {

/// The value of the series whose line begins with `series`, as text.
std::string value_of(const std::string& text, const std::string& series) {
  const auto at = text.find("\n" + series + " ");
  if (at == std::string::npos) return "missing";
  const auto begin = at + series.size() + 2;
  return text.substr(begin, text.find('\n', begin) - begin);
}

TEST_CASE("the exposition has vLLM's names with our prefix") {
  Metrics metrics("m");
  metrics.set_requests_running(3);
  metrics.set_requests_waiting(4);
  metrics.set_kv_cache_usage(0.5);
  metrics.set_nodes(2);
  metrics.add_prompt_tokens(10);
  metrics.add_generation_tokens(20);
  metrics.add_prefix_queries(30);
  metrics.add_prefix_hits(16);
  metrics.add_preemptions(3);
  metrics.on_first_token(0.015);
  metrics.on_inter_token(0.003);
  metrics.on_request_finished(
      {.reason = FinishReason::kStop,
       .aborted = false,
       .prompt_tokens = 10,
       .generation_tokens = 20,
       .timing = {.queued_ms = 100, .first_token_ms = 200, .total_ms = 1200}});
  metrics.on_request_finished({.reason = FinishReason::kNone, .aborted = true, .timing = {}});
  metrics.add_expert_tokens(3, 17, 5);
  metrics.add_expert_tokens(3, 17, 6);
  metrics.add_expert_reads(12);
  metrics.add_expert_reads(13);
  metrics.on_replayed_request();
  const std::string text = metrics.text();
  const std::string label = "{model_name=\"m\"}";
  CHECK(value_of(text, "troupe:num_requests_running" + label) == "3");
  CHECK(value_of(text, "troupe:num_requests_waiting" + label) == "4");
  CHECK(value_of(text, "troupe:kv_cache_usage_perc" + label) == "0.5");
  CHECK(value_of(text, "troupe:nodes" + label) == "2");
  CHECK(value_of(text, "troupe:prompt_tokens_total" + label) == "10");
  CHECK(value_of(text, "troupe:generation_tokens_total" + label) == "20");
  CHECK(value_of(text, "troupe:prefix_cache_queries_total" + label) == "30");
  CHECK(value_of(text, "troupe:prefix_cache_hits_total" + label) == "16");
  CHECK(value_of(text, "troupe:num_preemptions_total" + label) == "3");
  CHECK(value_of(text, "troupe:expert_reads_total" + label) == "25");
  CHECK(value_of(text, "troupe:recoveries_total" + label) == "0");
  CHECK(value_of(text, "troupe:replayed_requests_total" + label) == "1");
  CHECK(value_of(text, "troupe:time_to_first_token_seconds_count" + label) == "1");
  CHECK(value_of(text, "troupe:inter_token_latency_seconds_count" + label) == "1");
  CHECK(value_of(text, "troupe:e2e_request_latency_seconds_sum" + label) == "1.2");
  CHECK(value_of(text, "troupe:request_queue_time_seconds_sum" + label) == "0.1");
  CHECK(value_of(text, "troupe:request_prompt_tokens_sum" + label) == "10");
  CHECK(value_of(text, "troupe:request_generation_tokens_count" + label) == "2");
  CHECK(text.find("troupe:request_success_total{model_name=\"m\",finished_reason=\"stop\"} 1") !=
        std::string::npos);
  CHECK(text.find("finished_reason=\"abort\"} 1") != std::string::npos);
  CHECK(text.find("troupe:expert_tokens_total{model_name=\"m\",expert=\"17\",layer=\"3\"} 11") !=
        std::string::npos);
}

}  // namespace
}  // namespace troupe
