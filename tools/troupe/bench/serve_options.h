#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/result.h"
#include "tools/troupe/bench/load.h"
#include "tools/troupe/bench/prompts.h"
#include "tools/troupe/bench/report.h"
#include "tools/troupe/bench/http.h"

namespace troupe::bench {

/// What the command line says, as it says it. Names and defaults are those of `vllm bench serve`.
struct ServeOptions {
  std::string base_url = "http://127.0.0.1:8000", model, api_key, backend = "openai";
  std::vector<std::string> headers;  ///< KEY=VALUE
  bool insecure = false;

  std::uint64_t num_prompts = 1000, max_concurrency = 0, seed = 0, num_warmups = 0;
  double request_rate = 0, burstiness = 1, timeout_s = 600;  ///< a rate of 0: infinite
  int max_retries = 0;

  std::string dataset_name = "random", prompt_format = "auto";
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
  bool save_result = false, save_detailed = false;
  std::string result_dir, result_filename, html;

  std::string sweep;  ///< "", rate or concurrency
  double sweep_from = 1, sweep_good_share = 0.9;
  int sweep_points = 10;
  std::string kill;
};

/// The same, checked and ready.
struct ServePlan {
  HttpClient::Options client;
  LoadOptions load;  ///< without the model's name
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
  bool save_result = false, save_detailed = false;
  std::string result_dir, result_filename, html;
};

/// kInvalidArgument names the flag.
Result<ServePlan> resolve(const ServeOptions& options);

}  // namespace troupe::bench
