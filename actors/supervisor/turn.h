#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "actors/supervisor/links.h"
#include "actors/supervisor/membership.h"
#include "actors/supervisor/options.h"
#include "actors/supervisor/sessions.h"

namespace troupe {

/// What the Supervisor has counted in this life of the head.
struct SupervisorCounters {
  std::uint64_t joined = 0;
  std::uint64_t refused_joins = 0;
  std::uint64_t refused_messages = 0;  ///< of an old incarnation, or out of place
  std::uint64_t garbage = 0;           ///< messages that lie
  std::uint64_t lost = 0;
  std::uint64_t placements = 0;
  std::uint64_t recoveries = 0;  ///< times that it served again after it could not
  std::uint64_t moves = 0;       ///< copies of experts that were loaded to even out the load
  std::uint64_t unreachable_peers = 0;
  std::uint64_t refused_copies = 0;  ///< that did not prove themselves
};

/// One turn of the Supervisor: what those of its parts work with that decide over several others.
/// Sessions, Membership and Links know nobody else.
struct SupervisorTurn {
  TimePoint now;
  SupervisorEffects& effects;
  const SupervisorOptions& options;
  Sessions& sessions;
  Membership& members;
  Links& links;
  SupervisorCounters& counters;

  void record(std::string kind, std::string text) {
    sessions.record(std::move(kind), std::move(text), now, effects);
  }
};

}  // namespace troupe
