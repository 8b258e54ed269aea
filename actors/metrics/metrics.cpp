#include "actors/metrics/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <unordered_map>

#include "actors/metrics/process_metrics.h"
#include "runtime/version.h"

namespace troupe {
namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using Buckets = Histogram::BucketBoundaries;

// The bounds are vLLM's, so that its dashboards read the same; inter-token ones begin earlier,
// because small models are faster than its first bucket.
Buckets first_token_seconds() {
  return {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
          1.0,   2.5,   5.0,  7.5,  10,   20,   40,   80,  160,  640, 2560};
}
Buckets inter_token_seconds() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3,
          0.4,   0.5,    0.75,  1.0,  2.5,   5.0,  7.5,   10,  20,   40,  80};
}
Buckets request_seconds() {
  return {0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10,   15,  20,
          30,  40,  50,  60,  120, 240, 480, 960, 1920, 7680};
}
/// Of a part of a request's time: vLLM's bounds, and smaller ones before them.
Buckets phase_seconds() {
  Buckets buckets{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2};
  const Buckets longer = request_seconds();
  buckets.insert(buckets.end(), longer.begin(), longer.end());
  return buckets;
}
Buckets token_counts() {
  return {1,    2,    5,     10,    20,    50,     100,    200,    500,    1000,
          2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000};
}

std::uint64_t expert_key(int layer, int expert) {
  return (static_cast<std::uint64_t>(layer) << 32) | static_cast<std::uint32_t>(expert);
}

}  // namespace

struct Metrics::Impl {
  explicit Impl(const std::string& model_name) : labels{{"model_name", model_name}} {}

  Gauge& gauge(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Labels(labels).Register(registry).Add({});
  }
  prometheus::Family<Counter>& counters(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Labels(labels).Register(registry);
  }
  Counter& counter(const char* name, const char* help) { return counters(name, help).Add({}); }
  Histogram& histogram(const char* name, const char* help, const Buckets& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Labels(labels).Register(registry).Add(
        {}, buckets);
  }

  void note(auto what) {
    std::lock_guard lock(mutex);
    what(history, now());
  }

  std::mutex mutex;
  RequestHistory history{now()};  // guarded by mutex
  DeviceLoads loads;              // guarded by mutex
  prometheus::Labels labels;
  prometheus::Registry registry;

  Gauge& running = gauge("troupe:num_requests_running", "Requests that a replica is computing.");
  Gauge& waiting = gauge("troupe:num_requests_waiting",
                         "Requests that no replica computes: queued, parked, or taken back.");
  Gauge& kv_usage =
      gauge("troupe:kv_cache_usage_perc", "KV cache blocks in use; 1 means all of them.");
  Gauge& nodes = gauge("troupe:nodes", "Workers that can serve.");
  Gauge& connections = gauge("troupe:http_connections", "Open HTTP connections.");

  Counter& prefix_queries =
      counter("troupe:prefix_cache_queries_total", "Tokens looked up in the prefix cache.");
  Counter& prefix_hits =
      counter("troupe:prefix_cache_hits_total", "Tokens found in the prefix cache.");
  Counter& prompt_tokens =
      counter("troupe:prompt_tokens_total",
              "Prompt tokens of accepted requests, computed or found in the prefix cache.");
  Counter& generation_tokens =
      counter("troupe:generation_tokens_total", "Tokens that were generated.");
  Counter& preemptions =
      counter("troupe:num_preemptions_total", "Sequences put back because KV blocks ran out.");
  Counter& recoveries =
      counter("troupe:recoveries_total", "Times the cluster went on after a loss.");
  Counter& replayed = counter("troupe:replayed_requests_total",
                              "Times that a choice was given to a replica again: after a loss, for "
                              "want of room, on trial.");
  Counter& refused = counter("troupe:refused_nodes_total", "Nodes that were not let in.");
  Counter& garbage = counter("troupe:garbage_connections_total",
                             "Connections that were closed because they sent something else.");
  Counter& expert_moves = counter("troupe:expert_moves_total", "Experts moved between devices.");
  Counter& expert_reads =
      counter("troupe:expert_reads_total", "Times that an expert's weights were read.");

  prometheus::Family<Counter>& success =
      counters("troupe:request_success_total", "Requests that ended, by how.");
  Counter& success_stop = success.Add({{"finished_reason", "stop"}});
  Counter& success_length = success.Add({{"finished_reason", "length"}});
  Counter& success_abort = success.Add({{"finished_reason", "abort"}});
  Counter& success_error = success.Add({{"finished_reason", "error"}});
  prometheus::Family<Counter>& http_responses =
      counters("troupe:http_responses_total", "HTTP responses, by status code.");
  prometheus::Family<Counter>& expert_tokens =
      counters("troupe:expert_tokens_total", "Tokens that the gate sent to an expert.");
  prometheus::Family<Gauge>& expert_imbalance =
      prometheus::BuildGauge()
          .Name("troupe:expert_imbalance")
          .Help("Tokens of the busiest device over the mean of all devices.")
          .Labels(labels)
          .Register(registry);

  Histogram& first_token =
      histogram("troupe:time_to_first_token_seconds",
                "From accepting a request to its first token.", first_token_seconds());
  Histogram& inter_token = histogram("troupe:inter_token_latency_seconds",
                                     "Between two tokens of one choice.", inter_token_seconds());
  Histogram& e2e = histogram("troupe:e2e_request_latency_seconds",
                             "From accepting a request to its end.", request_seconds());
  Histogram& queue_time =
      histogram("troupe:request_queue_time_seconds", "From accepting a request to its computation.",
                phase_seconds());
  Histogram& prefill_time = histogram("troupe:request_prefill_time_seconds",
                                      "From a request's first step to its first token.",
                                      phase_seconds());
  Histogram& decode_time = histogram("troupe:request_decode_time_seconds",
                                     "From a request's first token to its last.", phase_seconds());
  Histogram& inference_time =
      histogram("troupe:request_inference_time_seconds",
                "From a request's first step to its last token.", phase_seconds());
  Histogram& request_max_tokens =
      histogram("troupe:request_params_max_tokens",
                "Tokens that an accepted request may get, of each choice.", token_counts());
  Histogram& request_prompt_tokens =
      histogram("troupe:request_prompt_tokens", "Prompt tokens of a request.", token_counts());
  Histogram& request_generation_tokens =
      histogram("troupe:request_generation_tokens", "Tokens that a request got.", token_counts());

  // Finding a series by its labels costs a map of strings; the gates count every step.
  std::mutex experts_mutex;
  std::unordered_map<std::uint64_t, Counter*> experts;
  std::unordered_map<int, Gauge*> imbalances;
};

Metrics::Metrics(const std::string& model_name) : impl_(std::make_unique<Impl>(model_name)) {
  prometheus::BuildGauge()
      .Name("troupe:build_info")
      .Help("1; its labels say which version runs.")
      .Labels(impl_->labels)
      .Register(impl_->registry)
      .Add({{"version", kVersion}})
      .Set(1);
}
Metrics::~Metrics() = default;

void Metrics::set_requests_running(std::uint64_t count) {
  impl_->running.Set(static_cast<double>(count));
  impl_->note([&](RequestHistory& h, TimePoint at) { h.set_running(count, at); });
}
void Metrics::set_requests_waiting(std::uint64_t count) {
  impl_->waiting.Set(static_cast<double>(count));
  impl_->note([&](RequestHistory& h, TimePoint at) { h.set_waiting(count, at); });
}
void Metrics::set_kv_cache_usage(double fraction) { impl_->kv_usage.Set(fraction); }
void Metrics::set_nodes(std::uint64_t ready) { impl_->nodes.Set(static_cast<double>(ready)); }
void Metrics::set_http_connections(std::uint64_t open) {
  impl_->connections.Set(static_cast<double>(open));
}

void Metrics::add_device_loads(NodeId node, const std::vector<float>& utilization) {
  std::lock_guard lock(impl_->mutex);
  for (std::uint32_t i = 0; i < utilization.size(); ++i)
    impl_->loads.add({node, i}, utilization[i], now());
}

void Metrics::add_prompt_tokens(std::uint64_t count) {
  impl_->prompt_tokens.Increment(static_cast<double>(count));
  impl_->note([&](RequestHistory& h, TimePoint at) { h.add_prompt_tokens(count, at); });
}
void Metrics::add_generation_tokens(std::uint64_t count) {
  impl_->generation_tokens.Increment(static_cast<double>(count));
  impl_->note([&](RequestHistory& h, TimePoint at) { h.add_generation_tokens(count, at); });
}
void Metrics::add_prefix_queries(std::uint64_t tokens) {
  impl_->prefix_queries.Increment(static_cast<double>(tokens));
}
void Metrics::add_prefix_hits(std::uint64_t tokens) {
  impl_->prefix_hits.Increment(static_cast<double>(tokens));
}
void Metrics::on_first_token(double seconds) {
  impl_->first_token.Observe(seconds);
  impl_->note([&](RequestHistory& h, TimePoint at) { h.add_first_token(seconds, at); });
}
void Metrics::on_inter_token(double seconds) {
  impl_->inter_token.Observe(seconds);
  impl_->note([&](RequestHistory& h, TimePoint at) { h.add_inter_token(seconds, at); });
}

void Metrics::on_request_finished(const FinishedRequest& request) {
  Counter& counter = request.aborted                           ? impl_->success_abort
                     : request.reason == FinishReason::kStop   ? impl_->success_stop
                     : request.reason == FinishReason::kLength ? impl_->success_length
                                                               : impl_->success_error;
  counter.Increment();
  impl_->request_prompt_tokens.Observe(static_cast<double>(request.prompt_tokens));
  impl_->request_generation_tokens.Observe(static_cast<double>(request.generation_tokens));
  const auto& [queued_ms, first_token_ms, total_ms] = request.timing;
  const auto observe = [](Histogram& histogram, double from_ms, double to_ms) {
    if (from_ms >= 0 && to_ms >= from_ms) histogram.Observe((to_ms - from_ms) / 1e3);
  };
  observe(impl_->queue_time, 0, queued_ms);
  observe(impl_->prefill_time, queued_ms, first_token_ms);
  observe(impl_->decode_time, first_token_ms, total_ms);
  observe(impl_->inference_time, queued_ms, total_ms);
  observe(impl_->e2e, 0, total_ms);
}

void Metrics::on_max_tokens(std::uint64_t count) {
  impl_->request_max_tokens.Observe(static_cast<double>(count));
}

void Metrics::add_preemptions(std::uint64_t count) {
  impl_->preemptions.Increment(static_cast<double>(count));
}
void Metrics::on_recovery() { impl_->recoveries.Increment(); }
void Metrics::on_replayed_request() { impl_->replayed.Increment(); }
void Metrics::on_refused_node() { impl_->refused.Increment(); }
void Metrics::on_garbage_connection() { impl_->garbage.Increment(); }

void Metrics::on_http_response(int status) {
  impl_->http_responses.Add({{"code", std::to_string(status)}}).Increment();
}

void Metrics::add_expert_tokens(int layer, int expert, std::uint64_t count) {
  std::lock_guard lock(impl_->experts_mutex);
  Counter*& counter = impl_->experts[expert_key(layer, expert)];
  if (counter == nullptr) {
    counter = &impl_->expert_tokens.Add(
        {{"layer", std::to_string(layer)}, {"expert", std::to_string(expert)}});
  }
  counter->Increment(static_cast<double>(count));
}

void Metrics::set_expert_imbalance(int layer, double ratio) {
  std::lock_guard lock(impl_->experts_mutex);
  Gauge*& gauge = impl_->imbalances[layer];
  if (gauge == nullptr) gauge = &impl_->expert_imbalance.Add({{"layer", std::to_string(layer)}});
  gauge->Set(ratio);
}

void Metrics::add_expert_moves(std::uint64_t count) {
  impl_->expert_moves.Increment(static_cast<double>(count));
}

void Metrics::add_expert_reads(std::uint64_t count) {
  impl_->expert_reads.Increment(static_cast<double>(count));
}

std::string Metrics::text() const {
  std::vector<prometheus::MetricFamily> families = impl_->registry.Collect();
  std::ranges::move(process_metrics(), std::back_inserter(families));
  return prometheus::TextSerializer().Serialize(families);
}

History Metrics::history() const {
  std::lock_guard lock(impl_->mutex);
  const TimePoint at = now();
  History history{impl_->history.slots(at), {}};
  history.devices = impl_->loads.loads(at, history.requests.size());
  return history;
}

}  // namespace troupe
