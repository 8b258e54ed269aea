#include <unistd.h>

#include <cstdio>
#include <memory>

#include "model/random/random_checkpoint.h"
#include "runtime/host.h"
#include "tools/troupe/cli.h"

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
      return fail(invalid_argument("--format must be bf16, fp8 or int4, not '" + given.format +
                                   "'."),
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

}  // namespace

void add_bench(Cli& cli) {
  CLI::App* bench = cli.app.add_subcommand("bench", "What measuring needs");
  bench->require_subcommand(1);
  bench->footer("Examples:\n  troupe bench make-model --help");
  auto o = std::make_shared<MakeModelOptions>();
  CLI::App* make = bench->add_subcommand(
      "make-model", "Write a checkpoint with random weights, of the shape that a config.json says");
  set_up_command(cli, make,
                 "  troupe bench make-model --config configs/bench/v3-shaped.json --out DIR\n"
                 "  troupe bench make-model --config DIR/config.json --format int4 --out OTHER",
                 {[o] { return run(*o); }});
  // Here it is the model's, not a file of flags.
  make->remove_option(make->get_option("--config"));
  make->add_option("--config", o->checkpoint.config_file, "A model's config.json");
  make->add_option("--seed", o->checkpoint.seed, "The same seed, the same bytes (default: 0)");
  make->add_option("--format", o->format,
                   "bf16, fp8 (blocks of 128 x 128) or int4 (groups of 32) (default: as the config "
                   "says)");
  make->add_option("--out", o->checkpoint.folder, "The folder to write to, absent or empty");
}

}  // namespace troupe::cli
