#pragma once

#include <sys/types.h>

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"
#include "tools/troupe/bench/http.h"
#include "tools/troupe/bench/record.h"

namespace troupe::bench {

// What a Troupe cluster says of itself, from outside: GET /cluster/status.

/// kUnavailable, kCorrupt: the server tells no status, so it is no Troupe.
Result<nlohmann::json> parse_status(const Result<HttpAnswer>& answer);

/// The request for it.
HttpRequest status_request();

/// Its events from `since_unix_s` on, as marks on a time line that begins then.
std::vector<Mark> events_since(const nlohmann::json& status, double since_unix_s);

/// A worker that is ready, and on this machine.
struct LocalWorker {
  std::string node;
  pid_t pid = 0;
};
std::vector<LocalWorker> local_workers(const nlohmann::json& status, std::string_view host);

/// Ends a worker with SIGKILL: only a process of this user whose program is called troupe and whose
/// first argument is `worker`. kRefused: it is something else, and is left alone; kNotFound: there
/// is no such process.
Status kill_worker(pid_t pid);

}  // namespace troupe::bench
