#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/engine_options.h"
#include "runtime/generation.h"
#include "runtime/result.h"
#include "tools/troupe/device_flags.h"
#include "tools/troupe/failure.h"

namespace troupe {
struct LocalClusterOptions;
}

namespace troupe::cli {

/// What every command has.
struct CommonOptions {
  std::string state_dir;         ///< resolved before a command runs
  bool state_dir_given = false;  ///< by a flag
  std::string log_level;         ///< resolved too
  std::string config_file;
  std::string program = "troupe";  ///< what to type for it, as far as it is known
};

/// The command line being put together: each command adds its part, and sets what to run.
struct Cli {
  CLI::App app{"Troupe serves DeepSeek-V3-class mixture-of-experts models over a cluster."};
  CommonOptions common;
  Doubles doubles;
};

/// What a command does.
struct Action {
  /// Called after the configuration file has been read and logging set up; returns the exit code.
  std::function<int()> run;
  /// Else SIGTERM and Ctrl-C end it where it is, with exit code 0.
  bool takes_signals = false;
  std::string log_level = "info";
  bool keeps_state = true;  ///< else --state-dir is taken, and means nothing
};
/// Adds a subcommand with the common options. `examples` ends its --help.
CLI::App* add_command(Cli& cli, const std::string& name, const std::string& description,
                      const std::string& examples, Action action);
/// The same for a subcommand that is there already, such as one below another.
void set_up_command(Cli& cli, CLI::App* command, const std::string& examples, Action action);

/// Lines of the log begin with that name from now on.
Status speak_as(const std::string& who, const CommonOptions& common);

/// Engine flags, shared by up, head, generate and chat.
struct EngineFlags {
  EngineOptions options;
  std::string kv_cache_memory = "0", kv_cache_dtype = "auto", numerics = "auto";
  bool no_enable_prefix_caching = false;
  std::optional<std::uint64_t> seed;
};
void add_engine_flags(CLI::App* command, EngineFlags& flags);
/// Checks the values; errors name the flag.
Result<EngineOptions> resolve(const EngineFlags& flags);

/// Sampling flags, shared by generate and chat; the seed is one of the engine's.
void add_sampling_flags(CLI::App* command, GenerationRequest& request);

/// Network flags, shared by up, head and worker.
struct NetworkFlags {
  std::string fabric = "auto";
  std::string bind_interface;
};
void add_network_flags(CLI::App* command, NetworkFlags& flags);

/// The head's too, which computes nothing itself, so that one file serves all.
void add_cpu_family_flag(CLI::App* command, std::string& family);
void add_device_flags(const Cli& cli, CLI::App* command, DeviceFlags& flags);
/// What both say to a command that computes by itself, on one device. Errors name the flag.
Result<LocalClusterOptions> in_process(const EngineFlags& engine, const DeviceFlags& device);
/// The second tier's flag, of worker and up.
void add_tier_flag(CLI::App* command, DeviceFlags& flags);

void add_up(Cli& cli);
void add_head(Cli& cli);
void add_worker(Cli& cli);
void add_status(Cli& cli);
void add_top(Cli& cli);
void add_drain(Cli& cli);
void add_rebalance(Cli& cli);
void add_stop(Cli& cli);
void add_token(Cli& cli);
void add_certificate(Cli& cli);
void add_generate(Cli& cli);
void add_chat(Cli& cli);
void add_tokenize(Cli& cli);
void add_plan(Cli& cli);
void add_pull(Cli& cli);
void add_bench(Cli& cli);
void add_completion(Cli& cli);
/// Below `troupe bench`.
void add_bench_serve(Cli& cli, CLI::App* bench);
/// throughput and latency.
void add_bench_engine(Cli& cli, CLI::App* bench);

}  // namespace troupe::cli
