#include <unistd.h>

#include <cstdio>
#include <memory>

#include "model/random/random_checkpoint.h"
#include "runtime/host.h"
#include "tools/troupe/bench_network.h"
#include "tools/troupe/call.h"
#include "tools/troupe/commands.h"
#include "transport/link_messages.h"

namespace troupe::cli {
namespace {

struct MakeModelOptions {
  RandomCheckpointOptions checkpoint;
  std::string format;
};

double gigabytes(std::uint64_t bytes) { return static_cast<double>(bytes) * 1e-9; }

int run(const MakeModelOptions& given) {
  RandomCheckpointOptions o = given.checkpoint;
  if (o.config_file.empty())
    return fail(invalid_argument("Say whose shape with --config FILE, a model's config.json."),
                kUsage);
  if (o.folder.empty())
    return fail(invalid_argument("Say where to write with --out FOLDER."), kUsage);
  if (!given.format.empty()) {
    o.format = parse_random_format(given.format);
    if (!o.format)
      return fail(
          invalid_argument("--format must be bf16, fp8 or int4, not '" + given.format + "'."),
          kUsage);
  }
  o.threads = host_processors();
  // One line that is written over; where nobody looks on, a line for each tenth.
  const bool terminal = isatty(STDERR_FILENO) != 0;
  int shown = -1;
  const auto show = [&](std::uint64_t done, std::uint64_t total) {
    const int percent = static_cast<int>(done * 100 / total);
    const int mark = terminal ? percent : percent / 10;
    if (mark == shown) return;
    shown = mark;
    std::fprintf(stderr, "%s%3d %% of %.2f GB%s", terminal ? "\r" : "", percent, gigabytes(total),
                 terminal ? "" : "\n");
  };
  const auto made = write_random_checkpoint(o, show);
  if (terminal && shown >= 0) std::fputc('\n', stderr);
  if (!made.ok()) return fail_with(made.error());
  std::printf("%s: %llu tensors, %.2f GB in %llu %s\n", o.folder.c_str(),
              static_cast<unsigned long long>(made->tensors), gigabytes(made->bytes),
              static_cast<unsigned long long>(made->files), made->files == 1 ? "file" : "files");
  return kDone;
}

Command network_command() {
  auto o = std::make_shared<NetworkOptions>();
  return {.name = "network",
          .description = "Measure the links between the workers of a running cluster",
          .examples =
              "  troupe bench network\n"
              "  troupe bench network --node node-3 --size 256KiB --size 4MiB\n"
              "  troupe bench network --while-serving --json | jq .summary\n\n"
              "Each pair of workers measures the connection that serves it: round trips, then\n"
              "tensors both ways, a second a pair at most, one pair a worker at a time. It is\n"
              "refused while requests are served, unless --while-serving says otherwise.",
          .flags = {{"--node", &o->node, "Only this node's pairs: node-3, or 3"},
                    {.name = "--pairs",
                     .target = &o->pairs,
                     .help = "Measure so many pairs at most (default: 4096)",
                     .range = Range{1, kBenchPairsMax}},
                    {"--size", &o->sizes,
                     "What a tensor has, up to 16MiB; repeatable (default: 64KiB and 1MiB)"},
                    {"--while-serving", &o->while_serving,
                     "Also while requests are served: they share the links with it"},
                    {"--one-at-a-time", &o->one_at_a_time,
                     "One pair after the other, for workers that share a machine or a switch"},
                    {"--json", &o->json, "Print one JSON object instead"}},
          .run = [o](const Call& call) { return bench_network(call.common.state_dir, *o); }};
}

Command make_model_command() {
  auto o = std::make_shared<MakeModelOptions>();
  return {
      .name = "make-model",
      .description = "Write a checkpoint with random weights, of the shape that a config.json says",
      .examples =
          "  troupe bench make-model --config configs/bench/v3-shaped.json --out DIR\n"
          "  troupe bench make-model --config DIR/config.json --format int4 --out OTHER",
      .flags = {{"--config", &o->checkpoint.config_file, "A model's config.json"},
                {"--seed", &o->checkpoint.seed, "The same seed, the same bytes (default: 0)"},
                {"--format", &o->format,
                 "bf16, fp8 (blocks of 128 x 128) or int4 (groups of 32) (default: as the config "
                 "says)"},
                {"--out", &o->checkpoint.folder, "The folder to write to, absent or empty"}},
      .run = [o](const Call&) { return run(*o); },
      .keeps_state = false};
}

}  // namespace

Command bench_command(const Doubles& doubles) {
  return {
      .name = "bench",
      .description = "Measure a server, a model or the network",
      .examples =
          "  troupe bench serve --help\n  troupe bench compare --help\n"
          "  troupe bench throughput --help\n"
          "  troupe bench network --help\n"
          "  troupe bench make-model --help",
      .below = {bench_serve_command(), bench_compare_command(), bench_throughput_command(doubles),
                bench_latency_command(doubles), network_command(), make_model_command()}};
}

}  // namespace troupe::cli
