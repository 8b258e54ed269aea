#pragma once

#include <spdlog/logger.h>

#include <string>

#include "runtime/result.h"

namespace troupe {

/// The log: to stderr, one record a line and a write, so that lines of processes that share a
/// terminal or a file stay whole. Nobody waits for a reader that has stopped (a pager, Ctrl-S):
/// lines that find no room are left out, and their number is before the next one. The library's
/// own: an embedding program's spdlog is left alone.
spdlog::logger& logger();

struct LogOptions {
  std::string level = "info";  ///< and worse: trace, debug, info, warn, error or off
  std::string who;             ///< begins every record, such as "worker-1"
  bool colour = false;
};
/// Call it before other threads log.
Status init_log(const LogOptions& options);

}  // namespace troupe
