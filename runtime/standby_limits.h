#pragma once

#include <chrono>
#include <cstddef>

#include "runtime/limits.h"

/// Bounds of a standby, as limits.h has those of all else.
namespace troupe::limits {

/// A head and its standby that hear nothing of each other for so long count as gone.
inline constexpr auto kStandbySilence = kLease;
/// Changes of the membership that a standby has not acknowledged, before it counts as gone.
inline constexpr std::size_t kSuccessionsMax = 1024;
/// A worker that has granted a standby its term takes no older head for so long; a standby that
/// does not rule by then asks again.
inline constexpr auto kPledge = std::chrono::seconds(5);

}  // namespace troupe::limits
