#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/troupe/bench/record.h"

namespace troupe::bench {

/// The value below which `percent` of the values lie, between two of them in proportion, as
/// numpy.percentile has it; 0 without values. `sorted` is in ascending order.
double percentile(const std::vector<double>& sorted, double percent);

/// Of latencies, in milliseconds; all 0 without values.
struct Spread {
  std::vector<double> sorted;
  double mean = 0, median = 0, std = 0;  ///< the standard deviation of all, not of a sample
};
Spread spread_of(std::vector<double> values_ms);

/// A name and its bound in milliseconds: ttft, tpot or e2el.
using Goals = std::vector<std::pair<std::string, double>>;

/// What a run comes to, counted as `vllm bench serve` counts: latencies and tokens are those of
/// requests that completed.
struct Summary {
  double duration_s = 0;
  std::uint64_t completed = 0, failed = 0;
  std::uint64_t unfinished = 0;  ///< the run was ended before they were
  std::uint64_t input_tokens = 0, output_tokens = 0;
  double request_throughput = 0, output_throughput = 0, total_token_throughput = 0;  ///< a second
  std::optional<double> request_goodput;  ///< of requests that met every goal, a second
  double good_share = 0;                  ///< of those that completed or failed
  double max_output_tokens_per_s = 0;     ///< in whole seconds from the first start
  std::uint64_t max_concurrent_requests = 0;
  Spread ttft, tpot, itl, e2el, queue;
  double longest_gap_s = 0, longest_gap_at_s = 0;  ///< between tokens of a request that goes on
  std::uint64_t counted_by_pieces = 0;  ///< completed, and the server's word was not taken
  std::uint64_t usage_doubtful = 0;     ///< completed, and the server's word was wrong
  std::uint64_t at_once = 0;            ///< completed, and not among TPOT and ITL
};

/// The latencies of a request, by the names of `vllm bench serve`.
struct Metric {
  const char* key;
  const char* name;
  const char* headline;
  Spread Summary::*spread;
};
inline constexpr Metric kMetrics[] = {
    {"ttft", "TTFT", "Time to First Token", &Summary::ttft},
    {"tpot", "TPOT", "Time per Output Token (excl. 1st token)", &Summary::tpot},
    {"itl", "ITL", "Inter-token Latency", &Summary::itl},
    {"e2el", "E2EL", "End-to-end Latency", &Summary::e2el},
};

Summary summarize(const std::vector<RequestRecord>& records, double duration_s, const Goals& goals);

/// What went on in each second of a run.
struct Second {
  double output_tokens = 0;
  std::uint64_t running = 0;  ///< most requests under way at one moment of it
  std::uint64_t failed = 0;   ///< ended in it
};
std::vector<Second> seconds_of(const std::vector<RequestRecord>& records, double duration_s);

}  // namespace troupe::bench
