#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/engine_options.h"
#include "runtime/generation.h"
#include "runtime/result.h"
#include "tools/troupe/command_line/command.h"
#include "tools/troupe/device_flags.h"

namespace troupe {
struct LocalClusterOptions;
}

namespace troupe::cli {

/// Engine flags, shared by up, head, generate and chat.
struct EngineFlags {
  EngineOptions options;
  std::string kv_cache_memory = "0", kv_cache_dtype = "auto", numerics = "auto";
  bool no_enable_prefix_caching = false;
  std::optional<std::uint64_t> seed;
};
void add_engine_flags(Command& command, EngineFlags& flags);
/// Checks the values; errors name the flag.
Result<EngineOptions> resolve(const EngineFlags& flags);

/// Sampling flags, shared by generate and chat; the seed is one of the engine's.
void add_sampling_flags(Command& command, GenerationRequest& request);

/// Network flags, shared by up, head and worker.
struct NetworkFlags {
  std::string fabric = "auto";
  std::string bind_interface;
};
void add_network_flags(Command& command, NetworkFlags& flags);

void add_device_flags(Command& command, DeviceFlags& flags, const Doubles& doubles);
/// What both say to a command that computes by itself, on one device. Errors name the flag.
Result<LocalClusterOptions> in_process(const EngineFlags& engine, const DeviceFlags& device);
/// The second tier's flag, of worker and up.
void add_tier_flag(Command& command, DeviceFlags& flags);

}  // namespace troupe::cli
