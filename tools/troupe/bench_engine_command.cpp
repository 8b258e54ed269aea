#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "actors/api/cluster.h"
#include "actors/frontend/model_frontend.h"
#include "tools/troupe/bench/engine.h"
#include "tools/troupe/bench/prompts.h"
#include "tools/troupe/call.h"
#include "tools/troupe/commands.h"
#include "tools/troupe/flags.h"

namespace troupe::cli {
namespace {

using bench::PromptOptions;
using bench::PromptSource;

/// What both commands have.
struct EngineBench {
  EngineFlags engine;
  DeviceFlags device;
  PromptOptions prompts;
  std::uint32_t n = 1;
  bool json = false;
  std::string output_json;
};

struct ThroughputOptions : EngineBench {
  std::string dataset = "random";
  std::uint64_t num_prompts = 1000, output_len = 0;
};

struct LatencyOptions : EngineBench {
  LatencyOptions() {
    prompts.input_len = 32;
    prompts.output_len = 128;
  }
  std::uint64_t batch_size = 8, num_iters = 30, num_iters_warmup = 10;
};

/// The model, what it is asked, and the cluster that answers.
struct Measured {
  std::unique_ptr<PromptSource> source;
  std::shared_ptr<const ModelFrontend> frontend;
  std::unique_ptr<Cluster> cluster;
};

GenerationRequest request_of(const PromptSource& source, std::uint64_t number, std::uint32_t n) {
  bench::Prompt prompt = source.prompt(number);
  GenerationRequest request;
  if (prompt.ids.empty())
    request.prompt = std::move(prompt.text);
  else
    request.prompt = std::move(prompt.ids);
  request.max_tokens = static_cast<std::uint32_t>(prompt.output_tokens);
  request.n = n;
  request.temperature = 1.0f;
  request.top_p = 1.0f;
  request.ignore_eos = true;
  request.streams = false;
  return request;
}

/// What is wrong with the first request is said before weights are loaded for it.
Result<Measured> start(const EngineBench& o, bool prefix_caching) {
  auto options = in_process(o.engine, o.device);
  if (!options.ok()) return options.error();
  if (!prefix_caching) options->engine.prefix_caching = false;
  Measured measured;
  auto frontend = ModelFrontend::load(options->engine);
  if (!frontend.ok()) return frontend.error();
  measured.frontend = std::move(*frontend);
  bench::Vocabulary vocabulary;
  vocabulary.ids.resize(static_cast<std::size_t>(measured.frontend->vocab_size()));
  std::iota(vocabulary.ids.begin(), vocabulary.ids.end(), 0);
  PromptOptions prompts = o.prompts;
  prompts.seed = options->engine.seed.value_or(0);
  auto source = bench::make_prompts(prompts, std::move(vocabulary));
  if (!source.ok()) return source.error();
  measured.source = std::move(*source);
  if (const auto prepared = measured.frontend->prepare(request_of(*measured.source, 0, o.n));
      !prepared.ok())
    return prepared.error();
  auto cluster = Cluster::start(*options);
  if (!cluster.ok()) return cluster.error();
  measured.cluster = std::move(*cluster);
  return measured;
}

/// One line that is written over, where somebody looks on.
void show(const char* what, std::uint64_t done, std::uint64_t total) {
  if (isatty(STDERR_FILENO) == 0) return;
  std::fprintf(stderr, "\r%s %llu of %llu%s", what, static_cast<unsigned long long>(done),
               static_cast<unsigned long long>(total), done == total ? "\n" : "");
}

int tell(const EngineBench& o, const nlohmann::json& result, const std::string& text) {
  std::printf("%s", o.json ? (result.dump() + "\n").c_str() : text.c_str());
  if (o.output_json.empty()) return kDone;
  std::ofstream file(o.output_json, std::ios::binary | std::ios::trunc);
  file << result.dump(4) << "\n";
  file.close();
  if (file) return kDone;
  return fail_with(unavailable("'" + o.output_json + "' cannot be written."));
}

int run_throughput(ThroughputOptions o) {
  using Kind = PromptOptions::Kind;
  if (const Status set = bench::set_dataset(o.dataset, {Kind::kRandom, Kind::kShareGpt}, o.prompts);
      !set.ok())
    return fail_with(set.error());
  if (o.output_len > 0) o.prompts.output_len = o.prompts.sharegpt_output_len = o.output_len;
  auto measured = start(o, true);
  if (!measured.ok()) return fail_with(measured.error());
  std::vector<GenerationRequest> requests;
  for (std::uint64_t i = 0; i < o.num_prompts; ++i)
    requests.push_back(request_of(*measured->source, i, o.n));
  const auto run = bench::answer_all(*measured->cluster, requests, [&](std::uint64_t over) {
    show("Requests:", over, o.num_prompts);
  });
  if (!run.ok()) return fail_with(run.error());
  return tell(o, throughput_json(*run), throughput_text(*run));
}

int run_latency(const LatencyOptions& o) {
  // The same batch again and again: it is to be computed each time.
  auto measured = start(o, false);
  if (!measured.ok()) return fail_with(measured.error());
  std::vector<GenerationRequest> batch;
  for (std::uint64_t i = 0; i < o.batch_size; ++i)
    batch.push_back(request_of(*measured->source, i, o.n));
  std::vector<double> latencies_s;
  const std::uint64_t iterations = o.num_iters_warmup + o.num_iters;
  for (std::uint64_t i = 0; i < iterations; ++i) {
    const auto run = bench::answer_all(*measured->cluster, batch);
    if (!run.ok()) return fail_with(run.error());
    if (i >= o.num_iters_warmup) latencies_s.push_back(run->elapsed_s);
    show("Iterations:", i + 1, iterations);
  }
  return tell(o, bench::latency_json(latencies_s), bench::latency_text(latencies_s));
}

void add_engine_bench_flags(Command& command, EngineBench& o, const Doubles& doubles) {
  add_flags(command, "Options",
            {{"--input-len", &o.prompts.input_len,
              "Tokens of a random prompt (default: " + std::to_string(o.prompts.input_len) + ")"},
             {.name = "--n",
              .target = &o.n,
              .help = "Choices of each prompt (default: 1)",
              .range = kPositive},
             {"--json", &o.json, "Print one JSON object instead"},
             {"--output-json", &o.output_json, "Write it to this file"}});
  add_engine_flags(command, o.engine);
  add_device_flags(command, o.device, doubles);
}

}  // namespace

Command bench_throughput_command(const Doubles& doubles) {
  auto o = std::make_shared<ThroughputOptions>();
  Command command{
      .name = "throughput",
      .description = "How many tokens a second a model gives in this process, all asked at once",
      .examples =
          "  troupe bench throughput --model DIR --input-len 256 --num-prompts 100\n"
          "  troupe bench throughput --model DIR --dataset sharegpt:FILE",
      .flags = {{.name = "--num-prompts",
                 .target = &o->num_prompts,
                 .help = "Requests (default: 1000)",
                 .range = kPositive},
                {"--output-len", &o->output_len,
                 "Tokens of an answer (default: 128; of ShareGPT, as the file's)"},
                {.name = "--dataset",
                 .target = &o->dataset,
                 .help = "random, or sharegpt:FILE (default: random)",
                 .values = {"random", "sharegpt:"},
                 .elsewhere = {"--dataset-name", "--dataset-path"}},
                {.name = "--random-range-ratio",
                 .target = &o->prompts.range_ratio,
                 .help = "Lengths are uniform in LEN x (1 - R) to LEN x (1 + R) (default: 0)",
                 .range = Range{0, 1}},
                {"--prefix-len", &o->prompts.prefix_len,
                 "Tokens that all random prompts begin with, besides (default: 0)"}},
      .run = [o](const Call&) { return run_throughput(*o); },
      .log_level = "warn",
      .keeps_state = false};
  add_engine_bench_flags(command, *o, doubles);
  return command;
}

Command bench_latency_command(const Doubles& doubles) {
  auto o = std::make_shared<LatencyOptions>();
  Command command{.name = "latency",
                  .description = "How long a model takes in this process to answer one batch",
                  .examples =
                      "  troupe bench latency --model DIR --input-len 32 --output-len 128\n"
                      "  troupe bench latency --model DIR --batch-size 1 --num-iters 5 --json",
                  .flags = {{.name = "--output-len",
                             .target = &o->prompts.output_len,
                             .help = "Tokens of an answer (default: 128)",
                             .range = kPositive},
                            {.name = "--batch-size",
                             .target = &o->batch_size,
                             .help = "Requests of a batch (default: 8)",
                             .range = kPositive},
                            {.name = "--num-iters",
                             .target = &o->num_iters,
                             .help = "Batches that are measured (default: 30)",
                             .range = kPositive},
                            {"--num-iters-warmup", &o->num_iters_warmup,
                             "Batches before, which are not (default: 10)"}},
                  .run = [o](const Call&) { return run_latency(*o); },
                  .log_level = "warn",
                  .keeps_state = false};
  add_engine_bench_flags(command, *o, doubles);
  return command;
}

}  // namespace troupe::cli
