#pragma once

#include <chrono>
#include <cstddef>

#include "runtime/limits.h"

/// Bounds of what goes on without a head, and of its standby, as limits.h has those of all else.
namespace troupe::limits {

/// A worker without a head keeps its weights and what it served so long, unless --keep-for says how
/// long: a restart of the head, or of its machine.
inline constexpr auto kKeepFor = 60s;
/// Longer is as good as without end: a year.
inline constexpr auto kKeepForMax = std::chrono::seconds(365 * 24h);
static_assert(kKeepFor <= kKeepForMax);

/// A head and its standby that hear nothing of each other for so long count as gone.
inline constexpr auto kStandbySilence = kLease;
/// Changes of the membership that a standby has not acknowledged, before it counts as gone.
inline constexpr std::size_t kSuccessionsMax = 1024;
/// A worker that has granted a standby its term takes no older head for so long; a standby that
/// does not rule by then asks again.
inline constexpr auto kPledge = std::chrono::seconds(5);

}  // namespace troupe::limits
