#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tools/troupe/bench/report.h"

namespace troupe::bench {
namespace {

using Json = nlohmann::ordered_json;

void add_facts(Json& json, const RunFacts& facts) {
  json["date"] = facts.date;
  json["endpoint_type"] = facts.backend;
  json["backend"] = facts.backend;
  json["label"] = nullptr;
  json["model_id"] = facts.model;
  json["tokenizer_id"] = nullptr;
  json["num_prompts"] = facts.num_prompts;
  for (const auto& [key, value] : facts.metadata) json[key] = value;
  if (std::isinf(facts.request_rate))
    json["request_rate"] = "inf";
  else
    json["request_rate"] = facts.request_rate;
  if (std::isinf(facts.burstiness))
    json["burstiness"] = "inf";
  else
    json["burstiness"] = facts.burstiness;
  json["max_concurrency"] = facts.max_concurrency > 0 ? Json(facts.max_concurrency) : Json();
  json["base_url"] = facts.base_url;
  json["dataset_name"] = facts.dataset;
  json["seed"] = facts.seed;
}

void add_totals(Json& json, const Summary& s) {
  json["duration"] = s.duration_s;
  json["completed"] = s.completed;
  json["failed"] = s.failed;
  json["total_input_tokens"] = s.input_tokens;
  json["total_output_tokens"] = s.output_tokens;
  json["request_throughput"] = s.request_throughput;
  json["request_goodput"] = s.request_goodput ? Json(*s.request_goodput) : Json();
  json["output_throughput"] = s.output_throughput;
  json["total_token_throughput"] = s.total_token_throughput;
  json["max_output_tokens_per_s"] = s.max_output_tokens_per_s;
  json["max_concurrent_requests"] = s.max_concurrent_requests;
}

void add_spread(Json& json, const Spread& spread, const std::string& name,
                const std::vector<double>& percentiles) {
  json["mean_" + name + "_ms"] = spread.mean;
  json["median_" + name + "_ms"] = spread.median;
  json["std_" + name + "_ms"] = spread.std;
  for (const double p : percentiles)
    json["p" + percent_name(p) + "_" + name + "_ms"] = percentile(spread.sorted, p);
}

/// One list for each figure, a request after the other.
void add_requests(Json& json, const std::vector<RequestRecord>& records) {
  const auto list = [&](const char* key, const auto& figure) {
    Json& values = json[key] = Json::array();
    for (const RequestRecord& r : records) values.push_back(figure(r));
  };
  list("input_lens", [](const auto& r) { return r.prompt_tokens; });
  list("output_lens", [](const auto& r) { return r.ok ? r.output_tokens : 0; });
  list("ttfts", [](const auto& r) { return r.ttft_s; });
  list("itls", [](const auto& r) { return r.itls_s; });
  list("latencies", [](const auto& r) { return r.latency_s; });
  list("start_times", [](const auto& r) { return r.start_s; });
  list("queue_times", [](const auto& r) { return r.start_s - r.due_s; });
  list("generated_texts", [](const auto& r) { return r.text; });
  list("errors", [](const auto& r) { return r.error; });
}

/// What vLLM's has not.
void add_own(Json& json, const RunReport& report) {
  const Summary& s = report.summary;
  json["interrupted"] = report.interrupted;
  json["unfinished"] = s.unfinished;
  json["goodput_share"] = s.request_goodput ? Json(s.good_share) : Json();
  json["longest_gap_s"] = s.longest_gap_s;
  json["longest_gap_at_s"] = s.longest_gap_at_s;
  json["output_tokens_from_chunks"] = s.counted_by_pieces;
  json["usage_doubtful"] = s.usage_doubtful;
  json["answers_at_once"] = s.at_once;
  const Headroom& room = report.headroom;
  json["client"] = {{"bottleneck", room.bottleneck()},
                    {"loop_lag_p50_ms", room.lag_p50_ms},
                    {"loop_lag_p99_ms", room.lag_p99_ms},
                    {"loop_lag_max_ms", room.lag_max_ms},
                    {"cpu_share", room.cpu_share}};
  json["workers_killed"] = report.killed ? Json(*report.killed) : Json();
  Json& marks = json["events"] = Json::array();
  for (const Mark& mark : report.marks)
    marks.push_back({{"at_s", mark.at_s}, {"kind", mark.kind}, {"text", mark.text}});
}

}  // namespace

Json report_json(const RunReport& report, bool detailed) {
  Json json;
  add_facts(json, report.facts);
  add_totals(json, report.summary);
  if (detailed) add_requests(json, report.records);
  for (const Metric& metric : kMetrics)
    if (std::count(report.facts.metrics.begin(), report.facts.metrics.end(), metric.key) > 0)
      add_spread(json, report.summary.*metric.spread, metric.key, report.facts.percentiles);
  if (report.facts.max_concurrency > 0)
    add_spread(json, report.summary.queue, "client_queue_time", report.facts.percentiles);
  add_own(json, report);
  return json;
}

}  // namespace troupe::bench
