#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "actors/frontend/generation_service.h"
#include "runtime/request_name.h"
#include "runtime/result.h"

namespace troupe {

/// A request that can be found by its name.
struct NamedRequest {
  enum class State : std::uint8_t { kQueued, kRunning, kFinished, kFailed };
  std::shared_ptr<const RequestName> name;
  State state = State::kQueued;
  std::int64_t accepted_unix_ms = 0;
  bool kept = false;     ///< what is said of it need not wait for storage
  bool streams = false;  ///< it was asked for as a stream
  std::uint32_t max_tokens = 0;  ///< of each choice, as was found when it was accepted
};

/// What somebody wants to read of a request that was accepted before.
struct RequestWanted {
  std::string id;
  std::uint64_t owner = 0;
  std::uint32_t index = 0;  ///< which of its prompts
  /// Tokens of each choice that the reader has: it gets what follows. Choices that are not listed
  /// begin at 0.
  std::vector<std::uint32_t> from;
  bool follow = true;  ///< false: only what is there now; its last event has `request_done`
};

/// A key that comes again, with another question.
inline Error used_key() {
  return invalid_argument(
      "Idempotency-Key: this key was used for another request; take a new key for each request.");
}

/// Requests that were accepted under a name (RequestName), while they run and for an hour after
/// their end. Thread-safe; every call waits for the Router, kRouterAnswerDeadline at most.
class NamedRequests {
 public:
  virtual ~NamedRequests() = default;

  /// Its prompts, by index; one that was not accepted has no name. Errors: kNotFound, kUnavailable.
  virtual Result<std::vector<NamedRequest>> find(const std::string& id, std::uint64_t owner) = 0;
  /// The same of those that the owner asked for with this key.
  virtual Result<std::vector<NamedRequest>> find_key(const std::string& key,
                                                     std::uint64_t owner) = 0;
  /// The sink gets what follows `from`: what is there at once, then the rest as it comes. A request
  /// that failed gives its error. The answer is for GenerationService::cancel(), which then takes
  /// away this reader. Errors: kNotFound, kUnavailable.
  virtual Result<AcceptedRequest> attach(const RequestWanted& wanted,
                                         std::shared_ptr<GenerationSink> sink) = 0;
  /// Ends what runs of it with kCancelled; nobody finds it any more. Errors: kNotFound,
  /// kUnavailable.
  virtual Status forget(const std::string& id, std::uint64_t owner) = 0;
};

}  // namespace troupe
