#pragma once

#include <string>
#include <vector>

#include "actors/metrics/request_history.h"

namespace troupe {

/// GET /cluster/history: a list of each figure, under the names of the status; the newest last.
std::string history_json(const std::vector<RequestHistory::Slot>& slots);

}  // namespace troupe
