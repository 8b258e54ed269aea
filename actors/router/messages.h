#pragma once

#include <cstdint>

#include "actors/base/effects.h"
#include "actors/frontend/prepared_request.h"
#include "actors/interfaces.h"
#include "runtime/generation.h"
#include "runtime/result.h"

namespace troupe {

/// A door -> Router: accept this request. `ticket` is the door's own number for it.
struct SubmitRequest {
  std::uint64_t ticket = 0;
  PreparedRequest request;
  std::uint64_t random_seed = 0;  ///< used if the request has no seed of its own
};

// What only the Router asks for; its RequestDesk carries it out.

/// The request of that ticket has this number from now on, or is refused.
struct RequestAccepted {
  std::uint64_t ticket = 0;
  Result<std::uint64_t> request;
};
/// To the sink of a request.
struct DeliverEvent {
  std::uint64_t request = 0;
  GenerationEvent event;
};
/// For the metrics: something was measured. Names follow the metrics of the HTTP side.
struct RequestObservation {
  enum class Kind : std::uint8_t {
    kPromptTokens,      ///< value: tokens of an accepted request
    kGenerationTokens,  ///< value: tokens that came with one event
    kQueueTime,         ///< value: seconds until a replica began with the request
    kFirstToken,        ///< value: seconds until its first token
    kInterToken,        ///< value: seconds between tokens of a choice
    kEndToEnd,          ///< value: seconds until a request ended without an error
    kPrefixQueries,     ///< value: tokens of a sequence that a replica looked up when it began
    kPrefixHits,        ///< value: of these, those whose rows were there
  };
  Kind kind = Kind::kPromptTokens;
  double value = 0;
};
/// What the status shows of the requests may have changed.
struct RequestsChanged {};

using RouterEffects = Effects<RequestAccepted, DeliverEvent, RequestObservation, RequestsChanged>;

}  // namespace troupe
