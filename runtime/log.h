#pragma once

#include <spdlog/spdlog.h>

#include <string>

#include "runtime/result.h"

namespace troupe {

/// Sends the process's log to stderr, one line a record, at `level`
/// (trace, debug, info, warn, error, off). Call once, from main.
Status init_log(const std::string& level);

}  // namespace troupe
