#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actors/metrics/request_summary.h"
#include "actors/metrics/request_window.h"
#include "actors/supervisor/supervisor.h"

namespace troupe {

/// The Router's numbers in the status.
struct RequestCounters {
  std::uint64_t running = 0;
  std::uint64_t waiting = 0;
  std::uint64_t finished = 0;
  std::uint64_t failed = 0;
  std::uint64_t replayed = 0;
  RequestRates rates = {};
  std::vector<RequestSummary> list = {};  ///< the oldest that are not over
};

/// The JSON of `troupe status --json` and `/cluster/status`; one line. Fields that nothing has
/// measured yet are null.
std::string status_json(const Supervisor& supervisor, const RequestCounters& requests,
                        TimePoint now);

}  // namespace troupe
