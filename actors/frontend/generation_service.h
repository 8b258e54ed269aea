#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/generation.h"
#include "runtime/result.h"

namespace troupe {

/// Receives the events of one request, in order, from the Router's thread: it must not block.
class GenerationSink {
 public:
  virtual ~GenerationSink() = default;
  virtual void on_event(GenerationEvent event) = 0;
};

/// What came of a request that was submitted.
struct AcceptedRequest {
  std::uint64_t reader = 0;  ///< for GenerationService::cancel()
  /// Under which it is found; null if it has none. Of one that was there already, the first one's.
  std::shared_ptr<const RequestName> name;
  std::int64_t unix_ms = 0;  ///< when, or when the first one was; 0: nobody said
};

/// A door's view of the cluster: what the HTTP gateway, the embedding API and remote clients ask
/// for. Thread-safe.
class GenerationService {
 public:
  virtual ~GenerationService() = default;

  /// Validates, tokenises (in the caller's thread) and accepts the request. Errors:
  /// kInvalidArgument (a field is bad: the message names it), kResourceExhausted (queue full),
  /// kUnavailable (the cluster cannot serve now). The sink gets every event until the last; it is
  /// then released.
  ///
  /// A request whose name has a key that its owner has used before is not accepted again: the sink
  /// gets what was generated, then the rest. kInvalidArgument if something else was asked then.
  virtual Result<AcceptedRequest> submit(GenerationRequest request,
                                         std::shared_ptr<GenerationSink> sink) = 0;
  /// That reader went away. If it was the last one, what the request holds is freed within one
  /// step; but a request whose name has a key goes on. Unknown numbers are ignored.
  virtual void cancel(std::uint64_t reader) = 0;
};

/// What the doors may know of the cluster. Thread-safe.
class ClusterView {
 public:
  virtual ~ClusterView() = default;
  virtual std::string status_json() const = 0;  ///< the JSON of `troupe status --json`
  /// Why no request is taken now, a sentence; empty: they are.
  virtual std::string refuses() const = 0;
};

}  // namespace troupe
