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
  std::filesystem::path cache;
  int connections = 8;
  Duration silence = std::chrono::seconds(30);  ///< of a server, before it is given up
};

/// What has come of what has to; written by the pull, read by whoever shows it.
struct PullProgress {
  std::atomic<std::uint64_t> bytes{0}, bytes_total{0};
  std::atomic<std::uint64_t> files{0}, files_total{0};
};

/// Fetches what is not here yet, and returns the folder:
///
///     CACHE/ORG/NAME                           (or NAME@REVISION) a link to what is whole:
///     CACHE/ORG/.commits/NAME/COMMIT           every file checked
///     CACHE/ORG/.commits/NAME/COMMIT.partial   while it comes; a later run goes on with it
///
/// Errors are one sentence each; what has come is kept.
Result<std::filesystem::path> pull(const PullOptions& options, PullProgress& progress);

/// Where models are kept if nothing else is said: $TROUPE_CACHE, else ~/.cache/troupe.
std::filesystem::path default_cache();

/// The folder of a model of the hub that was pulled into the default cache; anything else, also
/// what is not there, as it is.
std::string model_folder(const std::string& model);

/// Where a model is once it was pulled.
std::filesystem::path pulled_folder(const std::filesystem::path& cache, const std::string& name,
                                    const std::string& revision = "main");

}  // namespace troupe::pull
