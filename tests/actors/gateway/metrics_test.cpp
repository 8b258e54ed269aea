#include "actors/metrics/metrics.h"

#include <doctest/doctest.h>

#include <chrono>
#include <string>

#include "runtime/version.h"

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
  metrics.on_max_tokens(64);
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
  CHECK(value_of(text, "troupe:request_prefill_time_seconds_sum" + label) == "0.1");
  CHECK(value_of(text, "troupe:request_decode_time_seconds_sum" + label) == "1");
  CHECK(value_of(text, "troupe:request_inference_time_seconds_sum" + label) == "1.1");
  CHECK(value_of(text, "troupe:request_inference_time_seconds_count" + label) == "1");
  CHECK(value_of(text, "troupe:request_params_max_tokens_sum" + label) == "64");
  CHECK(value_of(text, "troupe:build_info{model_name=\"m\",version=\"" + std::string(kVersion) +
                           "\"}") == "1");
  CHECK(value_of(text, "troupe:request_prompt_tokens_sum" + label) == "10");
  CHECK(value_of(text, "troupe:request_generation_tokens_count" + label) == "2");
  CHECK(text.find("troupe:request_success_total{model_name=\"m\",finished_reason=\"stop\"} 1") !=
        std::string::npos);
  CHECK(text.find("finished_reason=\"abort\"} 1") != std::string::npos);
  CHECK(text.find("troupe:expert_tokens_total{model_name=\"m\",expert=\"17\",layer=\"3\"} 11") !=
        std::string::npos);
}

TEST_CASE("what a request waits is told from a millisecond on") {
  Metrics metrics("m");
  metrics.on_request_finished({.timing = {.queued_ms = 1.5, .first_token_ms = 30, .total_ms = 30}});
  const std::string text = metrics.text();
  const std::string name = "troupe:request_queue_time_seconds_bucket{model_name=\"m\",le=";
  CHECK(value_of(text, name + "\"0.001\"}") == "0");
  CHECK(value_of(text, name + "\"0.0025\"}") == "1");
  // A request of one token has been decoded in no time.
  CHECK(value_of(text, "troupe:request_decode_time_seconds_count{model_name=\"m\"}") == "1");
}

TEST_CASE("a request that never began has no phases") {
  Metrics metrics("m");
  metrics.on_request_finished({.aborted = true, .timing = {.total_ms = 30}});
  const std::string text = metrics.text();
  for (const char* phase : {"queue", "prefill", "decode", "inference"}) {
    CAPTURE(phase);
    CHECK(value_of(text, "troupe:request_" + std::string(phase) +
                             "_time_seconds_count{model_name=\"m\"}") == "0");
  }
}

TEST_CASE("the process tells of itself as those of Prometheus' clients do") {
  const std::string text = Metrics("m").text();
  const auto number = [&](const char* name) { return std::stod(value_of(text, name)); };
  CHECK(number("process_resident_memory_bytes") > 1e6);
  CHECK(number("process_cpu_seconds_total") >= 0);
  CHECK(number("process_open_fds") >= 3);
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  const double now_s = std::chrono::duration<double>(since).count();
  CHECK(number("process_start_time_seconds") > now_s - 3600);
  CHECK(number("process_start_time_seconds") <= now_s + 1);
}

}  // namespace
}  // namespace troupe
