#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "tools/troupe/bench/serve.h"
#include "tools/troupe/call.h"
#include "tools/troupe/commands.h"
#include "tools/troupe/signals.h"

namespace troupe::cli {
namespace {

using bench::RunReport;
using bench::ServeOptions;
using bench::ServePlan;
using bench::ServeProgress;

/// While it lives, SIGTERM and Ctrl-C stop the client, so that what there is can be reported.
class StopOnSignal {
 public:
  explicit StopOnSignal(bench::HttpClient& client) {
    thread_ = std::thread([this, &client] {
      while (!over_) {
        const auto signal = signals_.wait(std::nullopt);
        if (signal == SIGTERM || signal == SIGINT) return client.stop();
      }
    });
  }
  ~StopOnSignal() {
    over_ = true;
    Signals::nudge();
    thread_.join();
  }

 private:
  const Signals signals_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

/// One line that is written over; where nobody looks on, a line for each tenth.
class ProgressLine {
 public:
  void show(const ServeProgress& at) {
    const TimePoint time = now();
    const std::uint64_t tenth = at.ended * 10 / std::max<std::uint64_t>(1, at.total);
    if (terminal_ ? !at.last && time - shown_at_ < std::chrono::milliseconds(100)
                  : at.last || tenth == tenth_)
      return;
    shown_at_ = time;
    tenth_ = at.last ? 0 : tenth;
    std::fprintf(stderr, "%s%llu of %llu requests, %llu failed%s", terminal_ ? "\r" : "",
                 static_cast<unsigned long long>(at.ended),
                 static_cast<unsigned long long>(at.total),
                 static_cast<unsigned long long>(at.failed), terminal_ && !at.last ? "" : "\n");
  }

 private:
  const bool terminal_ = isatty(STDERR_FILENO) != 0;
  TimePoint shown_at_{};
  std::uint64_t tenth_ = 0;
};

Status write_file(const std::string& path, const std::string& text) {
  const auto folder = std::filesystem::path(path).parent_path();
  std::error_code failed;
  if (!folder.empty()) std::filesystem::create_directories(folder, failed);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) return unavailable("'" + path + "' cannot be written.");
  return {};
}

Status save(const ServePlan& plan, const RunReport& report, const std::string& point) {
  if (!plan.save_result) return {};
  const std::string path = bench::result_path(plan, report.facts, point);
  const auto json = bench::report_json(report, plan.save_detailed);
  Status written =
      write_file(path, json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  if (written.ok()) std::fprintf(stderr, "The result is in %s\n", path.c_str());
  return written;
}

Status save_page(const ServePlan& plan, const std::vector<RunReport>& points, std::size_t shown) {
  if (plan.html.empty()) return {};
  Status written = write_file(plan.html, bench::report_html(points, shown));
  if (written.ok()) std::fprintf(stderr, "The page is in %s\n", plan.html.c_str());
  return written;
}

int run_sweep(const ServePlan& plan, bench::Serve& serve) {
  const bool by_rate = plan.sweep == ServePlan::Sweep::kRate;
  Status saved;
  const auto points = serve.sweep([&](const RunReport& report) {
    std::printf("%s", bench::report_text(report).c_str());
    std::fflush(stdout);
    const std::string point = by_rate
                                  ? "rate" + bench::rate_name(report.facts.request_rate)
                                  : "concurrency" + std::to_string(report.facts.max_concurrency);
    if (Status status = save(plan, report, point); !status.ok()) saved = std::move(status);
  });
  std::size_t best = 0;
  bool any = false;
  for (std::size_t i = 0; i < points.size(); ++i)
    if (serve.good(points[i])) best = i, any = true;
  std::printf("%s", bench::sweep_text(points, by_rate).c_str());
  std::printf(any ? "The goals are met up to the point of %.2f requests and %.1f output tokens a "
                    "second.\n"
                  : "The goals are met at no point.\n",
              any ? points[best].summary.request_throughput : 0,
              any ? points[best].summary.output_throughput : 0);
  if (Status status = save_page(plan, points, best); !status.ok()) saved = std::move(status);
  return saved.ok() ? kDone : fail_with(saved.error());
}

int run_once(const ServePlan& plan, bench::Serve& serve) {
  std::vector<RunReport> points;
  points.push_back(serve.run());
  const RunReport& report = points.front();
  std::printf("%s", bench::report_text(report).c_str());
  std::fflush(stdout);
  for (const Status& saved : {save(plan, report, ""), save_page(plan, points, 0)})
    if (!saved.ok()) return fail_with(saved.error());
  if (report.summary.completed > 0 || report.interrupted) return kDone;
  return fail(unavailable("No request completed."));
}

/// Each connection is a descriptor; the usual bound is for other programs.
void allow_many_connections() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

int run(ServeOptions options) {
  if (options.api_key.empty())
    if (const char* key = std::getenv("OPENAI_API_KEY")) options.api_key = key;
  auto plan = resolve(options);
  if (!plan.ok()) return fail_with(plan.error());
  allow_many_connections();
  auto client = bench::HttpClient::make(plan->client);
  if (!client.ok()) return fail_with(client.error());
  const StopOnSignal stop_on_signal(**client);
  ProgressLine line;
  bench::Serve serve(**client, *plan, [&](const ServeProgress& at) { line.show(at); });
  if (const Status prepared = serve.prepare(); !prepared.ok())
    return (*client)->stopped() ? kDone : fail_with(prepared.error());
  return plan->sweep == ServePlan::Sweep::kNone ? run_once(*plan, serve) : run_sweep(*plan, serve);
}

void add_server_flags(Command& command, ServeOptions& o) {
  add_flags(command, "Server",
            {{"--base-url", &o.base_url, "Where it is (default: http://127.0.0.1:8000)"},
             {"--backend", &o.backend,
              "openai: /v1/completions, or openai-chat: /v1/chat/completions (default: openai)"},
             {"--model", &o.model, "The name to ask for (default: the first of /v1/models)"},
             {"--api-key", &o.api_key, "Sent as a bearer's token (default: $OPENAI_API_KEY)"},
             {"--header", &o.headers, "KEY=VALUE, sent with each request; may be repeated"},
             {"--insecure", &o.insecure, "Take any certificate of an https server"}});
}

void add_traffic_flags(Command& command, ServeOptions& o) {
  add_flags(
      command, "Traffic",
      {{"--num-prompts", &o.num_prompts, "Requests (default: 1000)"},
       {"--request-rate", &o.request_rate, "Requests a second; inf: all at once (default: inf)"},
       {"--burstiness", &o.burstiness,
        "Shape of the gaps' gamma distribution: 1 is a Poisson process, less comes in bursts, "
        "more is even (default: 1)"},
       {"--max-concurrency", &o.max_concurrency,
        "Most requests under way; others wait here (default: no bound)"},
       {"--seed", &o.seed, "Of arrivals, prompts and kills (default: 0)"},
       {"--timeout", &o.timeout_s, "Longest a request may take, seconds (default: 600)"},
       {"--max-retries", &o.max_retries,
        "Of a request that gets 429 or 503, after its Retry-After (default: 0)"},
       {"--num-warmups", &o.num_warmups, "Requests before, which are not counted (default: 0)"}});
}

void add_prompt_flags(Command& command, ServeOptions& o) {
  auto& p = o.prompts;
  add_flags(
      command, "Prompts",
      {{"--dataset-name", &o.dataset_name,
        "random, sharegpt, prefix_repetition or sessions (conversations of several turns, as "
        "agents have) (default: random)"},
       {"--dataset-path", &p.path, "The ShareGPT file"},
       {"--prompt-format", &o.prompt_format,
        "auto, ids or words: what random prompts are of; auto is ids where the server's /tokenize "
        "gives some (default: auto)"},
       {"--vocab-size", &o.vocab_size, "Draw ids below that, instead of asking /tokenize"},
       {"--random-input-len", &p.input_len, "Tokens of a prompt (default: 1024)"},
       {"--random-output-len", &p.output_len, "Tokens of an answer (default: 128)"},
       {"--random-range-ratio", &p.range_ratio,
        "Lengths are uniform in LEN x (1 - R) to LEN x (1 + R) (default: 0)"},
       {"--random-prefix-len", &p.prefix_len,
        "Tokens that all prompts begin with, besides (default: 0)"},
       {"--prefix-repetition-prefix-len", &p.repeated_len, "Tokens of a prefix (default: 256)"},
       {"--prefix-repetition-suffix-len", &p.suffix_len, "Tokens after it (default: 256)"},
       {"--prefix-repetition-num-prefixes", &p.prefixes, "Different prefixes (default: 10)"},
       {"--prefix-repetition-output-len", &p.repeated_output_len,
        "Tokens of an answer (default: 128)"},
       {"--sharegpt-output-len", &p.sharegpt_output_len,
        "Tokens of an answer (default: as the file's)"},
       {"--session-turns", &p.turns, "Turns of a session; each is a request (default: 5)"},
       {"--session-think-time", &o.session_think_s,
        "Mean pause before a later turn, seconds (default: 0.5)"}});
}

void add_sampling_flags(Command& command, ServeOptions& o) {
  add_flags(command, "Sampling",
            {{"--ignore-eos", &o.ignore_eos,
              "Go on after the end of an answer (always so for random prompts)"},
             {"--temperature", &o.temperature, "0 is greedy (default: the server's)"},
             {"--top-p", &o.top_p, "As in the API"},
             {"--top-k", &o.top_k, "As in the API"},
             {"--min-p", &o.min_p, "As in the API"},
             {"--repetition-penalty", &o.repetition_penalty, "As in the API"},
             {"--presence-penalty", &o.presence_penalty, "As in the API"},
             {"--frequency-penalty", &o.frequency_penalty, "As in the API"},
             {"--extra-body", &o.extra_body,
              "A JSON object that is merged into each request; null takes a member out"}});
}

void add_report_flags(Command& command, ServeOptions& o) {
  add_flags(command, "Report",
            {{"--percentile-metrics", &o.percentile_metrics,
              "Of ttft, tpot, itl and e2el (default: ttft,tpot,itl)"},
             {"--metric-percentiles", &o.metric_percentiles, "Such as 50,99 (default: 99)"},
             {"--goodput", &o.goodput, "Goals of a request, in ms: ttft:500 tpot:50 e2el:5000"},
             {"--save-result", &o.save_result, "Write a JSON file, with the keys of vLLM's"},
             {"--save-detailed", &o.save_detailed, "With each request's figures and text in it"},
             {"--result-dir", &o.result_dir, "Its folder"},
             {"--result-filename", &o.result_filename, "Its name (default: from what is measured)"},
             {"--metadata", &o.metadata, "KEY=VALUE, to be put into it"},
             {"--html", &o.html, "Write a page with plots, which needs no network"}});
}

void add_trial_flags(Command& command, ServeOptions& o) {
  add_flags(
      command, "Sweeps and faults",
      {{"--sweep", &o.sweep, "rate or concurrency: doubles it until --goodput's goals are missed"},
       {"--sweep-from", &o.sweep_from, "The first point (default: 1)"},
       {"--sweep-points", &o.sweep_points, "Most points of doubling (default: 10)"},
       {"--sweep-good-share", &o.sweep_good_share,
        "Share of requests that must meet the goals (default: 0.9)"},
       {"--kill", &o.kill,
        "every=10s: SIGKILL one of this machine's workers of a Troupe cluster each time"}});
}

}  // namespace

Command bench_serve_command() {
  auto o = std::make_shared<ServeOptions>();
  Command command{
      .name = "serve",
      .description = "Load a server that speaks OpenAI's API and measure it",
      .examples =
          "  troupe bench serve --num-prompts 200 --request-rate 4 --random-input-len 256\n"
          "  troupe bench serve --backend openai-chat --dataset-name sharegpt --dataset-path FILE\n"
          "  troupe bench serve --sweep rate --goodput ttft:500 tpot:50 --num-prompts 100 --html "
          "r.html\n"
          "  troupe bench serve --max-concurrency 16 --kill every=10s --html faults.html",
      .run = [o](const Call&) { return run(*o); },
      .takes_signals = true,
      .log_level = "warn",
      .keeps_state = false};
  add_server_flags(command, *o);
  add_traffic_flags(command, *o);
  add_prompt_flags(command, *o);
  add_sampling_flags(command, *o);
  add_report_flags(command, *o);
  add_trial_flags(command, *o);
  return command;
}

}  // namespace troupe::cli
