#pragma once

#include "actors/metrics/request_history.h"

namespace troupe {

/// The beginning of a slot.
inline TimePoint slot(int number) { return TimePoint(RequestHistory::kSlot * (1000 + number)); }

}  // namespace troupe
