#pragma once

#include <cstdint>
#include <optional>

#include "runtime/clock.h"

namespace troupe {

/// One request that is not over yet, for the status.
struct RequestSummary {
  std::uint64_t id = 0;
  bool running = false;                  ///< a replica has begun with it
  std::optional<std::uint32_t> replica;  ///< of its first choice that is not finished
  std::uint64_t prompt_tokens = 0;
  std::uint64_t tokens = 0;  ///< of all choices, so far
  std::uint64_t replays = 0;
  TimePoint accepted;
};

}  // namespace troupe
