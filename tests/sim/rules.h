#pragma once

#include <chrono>
#include <span>

#include "tests/sim/history.h"

namespace troupe::sim {

class World;

/// How long no token may come, and no request be accepted, while somebody waits, in a cluster to
/// which nothing has happened for as long. It adds up what the table "Recovery" of the design and
/// runtime/limits.h say: a lease that ends (1.2 s), a link that is given up (2 s), a
/// plan and its load (2 s with the disks here), the pauses before retries (2 s).
inline constexpr Duration kWaitMax = std::chrono::seconds(8);

/// After these it may take longer, because a constant of the code says so.
struct LongWait {
  FaultKind after;
  Duration more;
  const char* why;
};
inline constexpr LongWait kLongWaits[] = {
    {FaultKind::kWeightsGone, std::chrono::seconds(30),
     "a member whose checkpoint is gone takes nothing new for kClosedMin, needed or not"},
    {FaultKind::kDiskDenied, std::chrono::seconds(30), "the same"},
    {FaultKind::kOtherFiles, std::chrono::seconds(20),
     "a node that fails a proof again takes nothing new for kDoubtMin"},
    {FaultKind::kOddTensors, std::chrono::seconds(20), "the same"},
    {FaultKind::kFlippedBit, std::chrono::seconds(75),
     "what the canary gave with a copy that was let go unproven is held to for a minute"},
    {FaultKind::kBrokenKernels, std::chrono::seconds(75), "the same of a device that went"},
};
/// How long one wait may be in a history in which these faults have struck.
Duration wait_max(std::span<const FaultKind> struck);

/// What must hold after every event. (What can be seen where it happens is checked there: tokens in
/// clients.cpp, steps in step_watch.cpp, each machine's own invariants in its shell.)
void check_rules(World& world);

/// What must hold once nothing goes on any more.
/// No step is under way, not even a canary's.
bool at_rest(World& world);
void check_idle(World& world);

}  // namespace troupe::sim
