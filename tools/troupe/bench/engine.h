#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "actors/api/cluster.h"
#include "runtime/generation.h"
#include "runtime/result.h"

namespace troupe::bench {

/// What a cluster did with requests that all were there from the beginning.
struct EngineRun {
  double elapsed_s = 0;
  std::uint64_t requests = 0, prompt_tokens = 0, output_tokens = 0;
};

/// Has all of them answered, as many at a time as the cluster takes. `on_end` is told how many are
/// over. The first error ends it.
Result<EngineRun> answer_all(Cluster& cluster, const std::vector<GenerationRequest>& requests,
                             const std::function<void(std::uint64_t)>& on_end = {});

/// What `vllm bench throughput` writes and prints.
nlohmann::json throughput_json(const EngineRun& run);
std::string throughput_text(const EngineRun& run);

/// What `vllm bench latency` writes and prints, of how long each batch took, in seconds.
nlohmann::json latency_json(const std::vector<double>& latencies_s);
std::string latency_text(const std::vector<double>& latencies_s);

}  // namespace troupe::bench
