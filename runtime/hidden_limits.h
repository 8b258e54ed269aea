#pragma once

#include <cstddef>

#include "runtime/limits.h"

/// Bounds of hidden states that are asked for, as limits.h has those of all else.
namespace troupe::limits {

/// That a request may ask for: 1,170 tokens of 7,168 numbers.
inline constexpr std::size_t kRequestHiddenBytesMax = 32u << 20;
/// That a step yields; of one row there is always room.
inline constexpr std::size_t kStepHiddenBytesMax = 4u << 20;
static_assert((kStepRowsMax + kStepSequencesMax) * kStepResultBytesMax +
                  kStepSequencesMax * kStepSequenceBytesMax + kStepHiddenBytesMax <
              kBulkHeaderBytesMax);
static_assert(kBulkHeaderBytesMax <= kControlFrameBytesMax);

}  // namespace troupe::limits
