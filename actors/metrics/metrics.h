#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "actors/metrics/device_loads.h"
#include "actors/metrics/request_history.h"
#include "runtime/generation.h"
#include "runtime/sampling_params.h"

namespace troupe {

/// What one finished request was, for the counters and histograms.
struct FinishedRequest {
  FinishReason reason = FinishReason::kNone;  ///< kNone: failed or cancelled, see `aborted`
  bool aborted = false;                       ///< the client went away
  std::uint64_t prompt_tokens = 0;
  std::uint64_t generation_tokens = 0;  ///< of all choices
  GenerationTiming timing;
};

/// The last hour in slots, as many of each device as of requests; those that are not over are not
/// told.
struct History {
  std::vector<RequestHistory::Slot> requests;
  std::vector<DeviceLoads::Load> devices;
};

/// The process's metrics for Prometheus, under vLLM's names with the prefix `troupe:`. Every series
/// carries the label model_name, but those of the process. Thread-safe; every call is cheap enough
/// for the Router's thread.
class Metrics {
 public:
  explicit Metrics(const std::string& model_name);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // --- What is going on ---
  void set_requests_running(std::uint64_t count);
  void set_requests_waiting(std::uint64_t count);
  void set_kv_cache_usage(double fraction);  ///< 0 to 1, of all replicas' blocks
  void set_nodes(std::uint64_t ready);       ///< workers that can serve
  void set_http_connections(std::uint64_t open);
  /// Of a node, by device: see DeviceLoads::add. Part of the history only.
  void add_device_loads(NodeId node, const std::vector<float>& utilization);

  // --- What has happened ---
  void add_prompt_tokens(std::uint64_t count);
  void add_generation_tokens(std::uint64_t count);
  void add_prefix_queries(std::uint64_t tokens);
  void add_prefix_hits(std::uint64_t tokens);
  void on_first_token(double seconds);  ///< since the request was accepted
  void on_inter_token(double seconds);  ///< between two tokens of one choice
  void on_max_tokens(std::uint64_t count);  ///< that an accepted request may get
  void on_request_finished(const FinishedRequest& request);
  void add_preemptions(std::uint64_t count);
  void on_recovery();  ///< the cluster went on after a loss
  void on_replayed_request();
  void on_http_response(int status);

  // --- Strangers at the doors ---
  void on_refused_node();        ///< wrong certificate, protocol, checkpoint, token
  void on_garbage_connection();  ///< bytes that are not our protocol

  // --- Experts ---
  void add_expert_tokens(int layer, int expert, std::uint64_t count);
  void set_expert_imbalance(int layer, double ratio);  ///< busiest device to the mean
  void add_expert_moves(std::uint64_t count);
  void add_expert_reads(std::uint64_t count);  ///< one: the weights of an expert, once

  /// The text exposition format of GET /metrics.
  std::string text() const;
  /// What graphs show.
  History history() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe
