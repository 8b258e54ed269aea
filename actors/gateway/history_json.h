#pragma once

#include <string>

#include "actors/metrics/metrics.h"

namespace troupe {

/// GET /cluster/history: a list of each figure, under the names of the status; the newest last,
/// null where there was none.
std::string history_json(const History& history);

}  // namespace troupe
