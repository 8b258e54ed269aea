#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "model/random/stored_config.h"
#include "runtime/result.h"

namespace troupe {

struct RandomCheckpointOptions {
  std::string config_file;  ///< a model's config.json
  std::string folder;       ///< to write to; absent or empty
  std::optional<RandomFormat> format;  ///< none: as the config says
  std::uint64_t seed = 0;
  int threads = 1;
};

struct RandomCheckpoint {
  std::uint64_t files = 0, tensors = 0;
  std::uint64_t bytes = 0;  ///< of all tensors
};

/// Writes a checkpoint with random weights: every tensor that the model's spec asks for, in files
/// of at most 2 GiB (a larger tensor has one of its own), then config.json, so that what was not
/// finished is no checkpoint. The bytes depend on the config, the format and the seed alone.
/// `on_progress` is told bytes written, of how many; by the calling thread. What fails leaves no
/// file behind. Errors: kInvalidArgument (the config, or a folder that holds something), those of
/// the storage.
Result<RandomCheckpoint> write_random_checkpoint(
    const RandomCheckpointOptions& options,
    const std::function<void(std::uint64_t done, std::uint64_t total)>& on_progress = {});

}  // namespace troupe
