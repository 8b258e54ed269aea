#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "runtime/clock.h"
#include "runtime/result.h"
#include "tools/troupe/http/url.h"

namespace troupe::pull {

struct PullOptions {
  std::string name;                  ///< ORG/NAME
  std::string revision = "main";     ///< a branch, a tag or a commit
  std::vector<http::Url> endpoints;  ///< the first that answers says what there is
  std::string token;                 ///< for the first endpoint only; empty: none
  std::vector<std::string> include, exclude;
  bool for_head = false;  ///< of safetensors files the headers alone
  std::filesystem::path cache;
  int connections = 8;
  Duration silence = std::chrono::seconds(30);  ///< of a server, before it is given up
};

/// What has come of what has to; written by the pull, read by whoever shows it.
struct PullProgress {
  std::atomic<std::uint64_t> bytes{0}, bytes_total{0};
  std::atomic<std::uint64_t> files{0}, files_total{0};
};

/// Fetches what is not here yet into the model's folder of the cache (hub_cache.h), and returns the
/// snapshot. Errors are one sentence each; what has come is kept, and a later run goes on with it.
Result<std::filesystem::path> pull(const PullOptions& options, PullProgress& progress);

}  // namespace troupe::pull
