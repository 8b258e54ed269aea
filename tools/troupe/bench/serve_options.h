#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/result.h"
#include "tools/troupe/bench/http.h"
#include "tools/troupe/bench/load.h"
#include "tools/troupe/bench/prompts.h"
#include "tools/troupe/bench/report.h"

namespace troupe::bench {

/// What the command line says, as it says it. Names and defaults are those of `vllm bench serve`,
/// but for the few that the interface gives.
struct ServeOptions {
  std::string base_url = "http://127.0.0.1:8000", model, api_key, backend = "openai";
  std::vector<std::string> headers;  ///< KEY=VALUE
  bool insecure = false;

  std::optional<std::uint64_t> num_prompts;
  std::vector<std::string> max_concurrency;  ///< "4", "1,2,4..200"
  std::uint64_t seed = 0, num_warmups = 0;
  std::string request_rate = "inf";
  double burstiness = 1, timeout_s = 600;
  int max_retries = 0;

  std::string dataset = "random", prompt_format = "auto";
  PromptOptions prompts;
  std::uint64_t vocab_size = 0;
  double session_think_s = 0.5;

  bool ignore_eos = false;
  std::optional<double> temperature, top_p, min_p, repetition_penalty, presence_penalty,
      frequency_penalty;
  std::optional<std::int64_t> top_k;
  std::string extra_body;

  std::string percentile_metrics = "ttft,tpot,itl", metric_percentiles = "99";
  std::vector<std::string> goodput, metadata;
  bool json = false, save_result = false, save_detailed = false;
  std::string result_dir, result_filename, report;

  std::string sweep;  ///< "", rate or concurrency
  double sweep_from = 1, sweep_good_share = 0.9;
  int sweep_points = 10;
  std::string kill;
};

/// The same, checked and ready.
struct ServePlan {
  HttpClient::Options client;
  LoadOptions load;  ///< without the model's name
  std::optional<std::uint64_t> num_prompts;
  PromptOptions prompts;
  RunFacts facts;
  bool chat = false;
  bool ask_vocabulary = false;  ///< prompts may be of ids, or need to know how long words are
  enum class Format : unsigned char { kAuto, kIds, kWords } format = Format::kAuto;
  std::uint64_t vocab_size = 0;
  std::uint64_t num_warmups = 0;
  std::string extra_body = "{}";  ///< merged into every request
  std::string sampling = "{}";
  std::optional<Duration> kill_every;
  enum class Sweep : unsigned char { kNone, kRate, kConcurrency } sweep = Sweep::kNone;
  double sweep_from = 1, sweep_good_share = 0.9;
  int sweep_points = 10;
  std::vector<std::uint64_t> series;  ///< bounds of concurrency, ascending, a run for each
  bool json = false, save_result = false, save_detailed = false;
  std::string result_dir, result_filename, report;  ///< the report's is a page of HTML
};

/// kInvalidArgument names the flag.
Result<ServePlan> resolve(const ServeOptions& options);

/// The bounds that "1,2,4..200" names, ascending, each once: a range doubles its first until its
/// last, which ends it.
Result<std::vector<std::uint64_t>> parse_concurrency(const std::vector<std::string>& words);
/// Requests of a series' run with so many streams; `asked`: by --num-prompts.
std::uint64_t requests_of_streams(std::uint64_t streams, std::uint64_t turns,
                                  std::optional<std::uint64_t> asked);

}  // namespace troupe::bench
