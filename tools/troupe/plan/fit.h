#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/placement/replan.h"
#include "model/spec/model_spec.h"
#include "runtime/engine_options.h"
#include "tools/troupe/plan/nodes.h"

/// Whether a model fits on a cluster that need not be there: asked of the planner that the head
/// uses.
namespace troupe {

struct FitQuestion {
  const ModelSpec& spec;
  EngineOptions engine;  ///< max_model_len and numerics resolved
  std::vector<NodeGroup> nodes;
  int threads = 1;                ///< of a device
  std::uint64_t tier_memory = 0;  ///< of a node, for the second tier of experts
  bool choose_pipeline = true;    ///< nobody has said how many stages
  bool choose_redundant = true;   ///< nor how many further copies
};

/// What is on a device when it serves, in bytes.
struct DeviceFit {
  DeviceUse use;
  std::uint64_t spare_bytes = 0;    ///< of use.expert_bytes: copies beyond an expert's first
  std::uint64_t scratch_bytes = 0;  ///< an upper bound of what computing takes
  std::uint64_t memory = 0;
  std::uint64_t total() const { return use.total() + scratch_bytes; }
};

/// A layout that fits.
struct Fit {
  EngineOptions engine;  ///< with what was chosen
  Placement placement;
  std::vector<DeviceFit> devices;    ///< ordered
  std::uint64_t kv_tokens = 0;       ///< of all replicas
  std::uint64_t kv_tokens_min = 0;   ///< of the replica that has the fewest
  std::uint64_t kv_block_bytes = 0;  ///< of the shard whose blocks are the largest
  /// What the loss of a node would mean; none where they are too many to look at each.
  std::optional<Survival> survival;
  std::int64_t experts = 0;            ///< of all layers
  std::int64_t experts_surviving = 0;  ///< that keep a copy in memory whichever node is lost
};

/// A change that was tried and makes it fit.
struct Remedy {
  std::string flag;  ///< "--nodes", "--max-model-len", ...
  std::string value;
};

struct FitAnswer {
  std::optional<Fit> fit;
  // Else:
  std::string trouble;         ///< a sentence: what is missing where
  std::uint64_t needed = 0;    ///< bytes of one replica and one copy of each expert, in all
  std::uint64_t plannable = 0; ///< bytes that may be planned, in all
  std::vector<Remedy> remedies;
};

/// A layout with the fewest pipeline stages that fit, unless they are given. Without a look at what
/// it survives.
Result<Fit> fewest_stages(const FitQuestion& question);

/// The answer, with more copies of experts if they pay. Errors: kInvalidArgument names the flag
/// whose value cannot be.
Result<FitAnswer> find_fit(const FitQuestion& question);

}  // namespace troupe
