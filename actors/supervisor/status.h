#pragma once

#include <cstdint>
#include <string>

#include "actors/supervisor/supervisor.h"

namespace troupe {

/// The Router's numbers in the status.
struct RequestCounters {
  std::uint64_t running = 0;
  std::uint64_t waiting = 0;
  std::uint64_t finished = 0;
  std::uint64_t failed = 0;
  std::uint64_t replayed = 0;
};

/// The JSON of `troupe status --json` and `/cluster/status`; one line. Fields that nothing has
/// measured yet are null.
std::string status_json(const Supervisor& supervisor, const RequestCounters& requests,
                        TimePoint now);

}  // namespace troupe
