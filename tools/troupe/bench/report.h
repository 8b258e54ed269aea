#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/troupe/bench/headroom.h"
#include "tools/troupe/bench/record.h"
#include "tools/troupe/bench/summary.h"

namespace troupe::bench {

/// One run as it was asked for.
struct RunFacts {
  std::string date;  ///< 20261126-041500, local time
  std::string backend, model, base_url;
  std::uint64_t num_prompts = 0;
  double request_rate = 0;  ///< may be infinite
  double burstiness = 1;
  std::uint64_t max_concurrency = 0;  ///< 0: none
  std::uint64_t seed = 0;
  std::string dataset;
  std::string lengths;  ///< what prompt lengths are: tokens, or words
  std::vector<std::string> metrics = {"ttft", "tpot", "itl"};
  std::vector<double> percentiles = {99};
  Goals goals;
  std::vector<std::pair<std::string, std::string>> metadata;
};

/// One run and what came of it.
struct RunReport {
  RunFacts facts;
  Summary summary;
  std::vector<RequestRecord> records;
  std::vector<Mark> marks;
  std::optional<std::uint64_t> killed;  ///< workers; none: it was not asked for
  Headroom headroom;
  bool interrupted = false;
};

/// As `vllm bench serve` prints it, then what it does not tell.
std::string report_text(const RunReport& report);
/// With the keys of `vllm bench serve --save-result`, and Troupe's own. `detailed`: each request's
/// figures too.
nlohmann::ordered_json report_json(const RunReport& report, bool detailed);
/// A line a point.
std::string sweep_text(const std::vector<RunReport>& points, bool by_rate);
/// Of answers that came with all their tokens at once: a sentence.
std::string at_once_note(const Summary& summary);
/// A page of its own, without a network: throughput over load and against latency where there are
/// several points, distributions and the time line of the one that is `shown`.
std::string report_html(const std::vector<RunReport>& points, std::size_t shown);

/// "99", or "99.9".
std::string percent_name(double percent);
/// "inf", or digits.
std::string rate_name(double rate);

}  // namespace troupe::bench
