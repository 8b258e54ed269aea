#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "actors/supervisor/known_state.h"
#include "model/placement/compute_room.h"
#include "model/placement/model_costs.h"
#include "runtime/clock.h"
#include "runtime/engine_options.h"
#include "runtime/ids.h"
#include "runtime/numerics.h"
#include "runtime/standby_limits.h"

namespace troupe {

struct SupervisorOptions {
  std::string cluster_id;
  std::string version;
  std::string model_path;
  std::uint64_t model_place = 0;  ///< of where model_path leads, see Greeting
  std::string model_name;
  std::string reasoning_style = "none";  ///< how answers of a chat hold thoughts
  bool reasoning_open = false;           ///< and whether they begin inside of one
  std::string checkpoint_hash;
  bool head_reads = true;  ///< it has the tensors, and confirms what workers read of them
  std::string host;  ///< the head's; workers of the same host are local
  std::int32_t pid = 0;
  std::string join_line;  ///< what to run on a worker, word for word; Listening replaces it
  EngineOptions engine;   ///< max_model_len resolved
  /// The model's bytes with a kernel family.
  std::function<ModelCosts(Numerics)> costs;
  /// What computing takes beside them on devices of so many threads, in steps of so many tokens.
  std::function<ComputeCosts(Numerics, int threads, std::int32_t tokens)> compute;
  std::int32_t expert_groups = 1;  ///< gate groups of a layer
  std::int32_t vocab_size = 1;
  /// Fills with bits that nobody can guess.
  std::function<void(std::span<std::byte>)> random;
  /// How long workers keep what they have when this head is gone.
  std::chrono::seconds keep_for = limits::kKeepFor;
  bool keeps_journal = true;  ///< of what it accepts: else nobody can follow it
  /// The head's own incarnation; workers get the numbers after it. See first_incarnation().
  Incarnation incarnation;
  /// The next new worker's id, as the last KeepNextNode said; 1 at the first start.
  std::uint32_t next_node = 1;
  /// As the Keep effects of earlier lives said, since the cluster was last stopped.
  KnownState known = {};
  TimePoint started{};
  std::int64_t started_unix_ms = 0;
};

/// The first incarnation of a head's life, larger than all that earlier lives gave: they gave fewer
/// than 2^32 each. `kept` is the value of the life before, which the head reads from the state
/// folder and replaces before it uses the new one; 0 when there is none, then the clock has to do.
constexpr std::uint64_t first_incarnation(std::uint64_t kept, std::int64_t unix_us) {
  const std::uint64_t next = kept == 0 ? 1 : kept + (1ull << 32);
  return unix_us > 0 && static_cast<std::uint64_t>(unix_us) > next
             ? static_cast<std::uint64_t>(unix_us)
             : next;
}

}  // namespace troupe
