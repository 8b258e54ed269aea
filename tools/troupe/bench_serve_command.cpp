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

/// Tells of runs: each at once as text, or all at the end as JSON, and in files.
class Teller {
 public:
  explicit Teller(const ServePlan& plan) : plan_(plan) {}

  /// Of one run; `point` is "", or its name among several.
  void tell(const RunReport& report, const std::string& point) {
    say(bench::report_text(report));
    if (!plan_.json && !plan_.save_result) return;
    Json json = bench::report_json(report, plan_.save_detailed);
    if (plan_.save_result)
      save(bench::result_path(plan_, report.facts, point), text_of(json, 1), "result");
    if (plan_.json) results_.push_back(std::move(json));
  }

  void say(const std::string& text) {
    if (plan_.json) return;
    std::printf("%s", text.c_str());
    std::fflush(stdout);
  }

  /// The exit code. `list`: they are points, however few.
  int end(const std::vector<RunReport>& points, bool list) {
    // Only the best one still has its records.
    const auto best =
        std::ranges::find_if(points, [](const auto& p) { return !p.records.empty(); });
    if (!plan_.report.empty())
      save(plan_.report,
           bench::report_html(points, static_cast<std::size_t>(best - points.begin())), "page");
    if (plan_.json) std::printf("%s", text_of(list ? results_ : results_.at(0), -1).c_str());
    if (!saved_.ok()) return fail_with(saved_.error());
    const bool any = std::ranges::any_of(points, [](const RunReport& point) {
      return point.summary.completed > 0 || point.interrupted;
    });
    return any ? kDone : fail(unavailable("No request completed."));
  }

 private:
  using Json = nlohmann::ordered_json;

  static std::string text_of(const Json& json, int indent) {
    return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
  }

  void save(const std::string& path, const std::string& text, const char* what) {
    if (Status written = write_file(path, text); !written.ok())
      saved_ = std::move(written);
    else
      std::fprintf(stderr, "The %s is in %s\n", what, path.c_str());
  }

  const ServePlan& plan_;
  Json results_ = Json::array();
  Status saved_;
};

/// How far the goals were met, as a sentence.
std::string goals_text(const ServePlan& plan, const bench::Serve& serve,
                       const std::vector<RunReport>& points) {
  const auto good = std::find_if(points.rbegin(), points.rend(),
                                 [&](const RunReport& point) { return serve.good(point); });
  if (good == points.rend()) return "The goals are met at no point.\n";
  char text[200];
  std::snprintf(text, sizeof text,
                "The goals are met up to the point of %.2f requests and %.1f output tokens a "
                "second.\n",
                good->summary.request_throughput, good->summary.output_throughput);
  if (plan.sweep == ServePlan::Sweep::kConcurrency &&
      good->facts.max_concurrency == plan.load.streams_max())
    return text +
           std::string("There are no more streams than that: raise --num-prompts for more.\n");
  return text;
}

int run_points(const ServePlan& plan, bench::Serve& serve) {
  const bool by_rate = plan.sweep == ServePlan::Sweep::kRate;
  Teller teller(plan);
  const auto tell = [&](const RunReport& report) {
    teller.tell(report, by_rate ? "rate" + bench::rate_name(report.facts.request_rate)
                                : "concurrency" + std::to_string(report.facts.max_concurrency));
  };
  const auto points = plan.series.empty() ? serve.sweep(tell) : serve.series(tell);
  teller.say(bench::sweep_text(points, by_rate));
  if (plan.series.empty()) teller.say(goals_text(plan, serve, points));
  return teller.end(points, true);
}

int run_once(const ServePlan& plan, bench::Serve& serve) {
  Teller teller(plan);
  std::vector<RunReport> points;
  points.push_back(serve.run());
  teller.tell(points.front(), "");
  return teller.end(points, false);
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
  const bool one = plan->sweep == ServePlan::Sweep::kNone && plan->series.empty();
  return one ? run_once(*plan, serve) : run_points(*plan, serve);
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
      {{"--num-prompts", &o.num_prompts,
        "Requests (default: 1000; of several --max-concurrency, 10 a stream of each run, and never "
        "less than one)"},
       {"--request-rate", &o.request_rate, "Requests a second; inf: all at once (default: inf)"},
       {"--burstiness", &o.burstiness,
        "Shape of the gaps' gamma distribution: 1 is a Poisson process, less comes in bursts, "
        "more is even (default: 1)"},
       {"--max-concurrency", &o.max_concurrency,
        "Most requests under way; others wait here. Several, as 1,2,4..200, are a run each; a "
        "range doubles until its end (default: no bound)"},
       {"--seed", &o.seed, "Of arrivals, prompts and kills (default: 0)"},
       {"--timeout", &o.timeout_s,
        "Longest a request may take, retries included, seconds (default: 600)"},
       {"--max-retries", &o.max_retries,
        "Of a request that gets 429 or 503, after its Retry-After (default: 0)"},
       {"--num-warmups", &o.num_warmups, "Requests before, which are not counted (default: 0)"}});
}

void add_prompt_flags(Command& command, ServeOptions& o) {
  auto& p = o.prompts;
  add_flags(
      command, "Prompts",
      {{.name = "--dataset",
        .target = &o.dataset,
        .help = "random, prefix (what prompts begin with comes again), sharegpt:FILE or sessions "
                "(conversations of several turns, as agents have) (default: random)",
        .values = {"random", "prefix", "sharegpt:", "sessions"},
        .elsewhere = {"--dataset-name", "--dataset-path"}},
       {"--prompt-format", &o.prompt_format,
        "auto, ids or words: what random prompts are of; auto is ids where the server's /tokenize "
        "gives some (default: auto)"},
       {"--vocab-size", &o.vocab_size, "Draw ids below that, instead of asking /tokenize"},
       {.name = "--random-input-len",
        .target = &p.input_len,
        .help = "Tokens of a prompt (default: 1024)",
        .short_name = "-i"},
       {.name = "--random-output-len",
        .target = &p.output_len,
        .help = "Tokens of an answer (default: 128)",
        .short_name = "-o"},
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
  add_flags(
      command, "Report",
      {{"--percentile-metrics", &o.percentile_metrics,
        "Of ttft, tpot, itl and e2el (default: ttft,tpot,itl)"},
       {"--metric-percentiles", &o.metric_percentiles, "Such as 50,99 (default: 99)"},
       {"--goodput", &o.goodput, "Goals of a request, in ms: ttft:500,tpot:50,e2el:5000"},
       {"--json", &o.json,
        "Print one JSON value instead, with the keys of vLLM's; of several runs, a list"},
       {"--save-result", &o.save_result, "Write the JSON to a file, too, of each run its own"},
       {"--save-detailed", &o.save_detailed, "JSON has each request's figures and text"},
       {"--result-dir", &o.result_dir, "The file's folder"},
       {"--result-filename", &o.result_filename,
        "The file's name (default: from what is measured)"},
       {"--metadata", &o.metadata, "KEY=VALUE, to be put into the JSON"},
       {.name = "--report",
        .target = &o.report,
        .help = "Write a page of HTML with plots to this file; it needs no network",
        .elsewhere = {"--html"}}});
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
          "  troupe bench serve --max-concurrency 1,2,4..200 -i 1024 -o 256 --report curve.html\n"
          "  troupe bench serve --num-prompts 200 --request-rate 4 -i 256 --json\n"
          "  troupe bench serve --backend openai-chat --dataset sharegpt:FILE\n"
          "  troupe bench serve --sweep rate --goodput ttft:500,tpot:50 --num-prompts 100\n"
          "  troupe bench serve --max-concurrency 16 --kill every=10s --report faults.html",
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
