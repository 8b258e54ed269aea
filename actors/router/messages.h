#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "actors/base/effects.h"
#include "actors/frontend/named_requests.h"
#include "actors/interfaces.h"
#include "runtime/generation.h"
#include "runtime/prepared_request.h"
#include "runtime/result.h"
#include "transport/journal_records.h"

namespace troupe {

/// A door -> Router: accept this request, or give what its key was used for before. `ticket` is the
/// door's own number for who reads it.
struct SubmitRequest {
  std::uint64_t ticket = 0;
  PreparedRequest request;
  std::uint64_t random_seed = 0;  ///< used if the request has no seed of its own
};
/// A door -> Router: somebody reads a request that was accepted before.
struct AttachReader {
  std::uint64_t ticket = 0;
  RequestWanted wanted;
};
/// A door -> Router: which requests have that name?
struct FindRequests {
  std::uint64_t ticket = 0;
  std::string id = {};
  std::uint64_t owner = 0;
  bool forget = false;   ///< and end them
  std::string key = {};  ///< if not empty, by that and not by `id`
};
/// Storage -> Router: what has come with that file up to that mark outlives the head.
struct JournalKept {
  std::uint64_t file = 0;
  std::uint64_t mark = 0;
};
/// Storage -> Router: that file cannot be written.
struct JournalFailed {
  std::uint64_t file = 0;
  std::string reason;  ///< a sentence
};

// What only the Router asks for; its RequestDesk and its JournalStore carry it out.

/// The request of that ticket has this number from now on, or is refused.
struct RequestAccepted {
  std::uint64_t ticket = 0;
  Result<std::uint64_t> request;
  std::shared_ptr<const RequestName> name = {};  ///< its own, or that of the one that was there
  std::int64_t unix_ms = 0;                      ///< when it was, or that one
};
/// To those who read a request.
struct DeliverEvent {
  std::uint64_t request = 0;
  GenerationEvent event;
  std::vector<std::uint64_t> readers = {};  ///< their tickets
  bool again = false;                       ///< others have been told before
};
/// An answer to FindRequests: the prompts by index.
struct RequestsFound {
  std::uint64_t ticket = 0;
  Result<std::vector<NamedRequest>> requests;
};
/// To storage: these records, at the end of that file.
struct KeepRecords {
  std::uint64_t file = 0;
  std::uint64_t mark = 0;     ///< for JournalKept
  bool begins = false;        ///< the file, with these
  bool tells = false;         ///< requests again; the next of them wait for JournalKept
  bool completes = false;     ///< with these it tells all: those before it may go
  std::uint32_t copy_to = 0;  ///< a standby's session that gets them, too; 0: none
  std::vector<JournalRecord> records;
};
/// Something to tell people of the journal.
struct JournalNote {
  std::string text;
};
/// For the metrics: something was measured. Names follow the metrics of the HTTP side.
struct RequestObservation {
  enum class Kind : std::uint8_t {
    kPromptTokens,      ///< value: tokens of an accepted request
    kMaxTokens,         ///< value: tokens that an accepted request may get, of each choice
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

using RouterEffects = Effects<RequestAccepted, DeliverEvent, RequestsFound, RequestObservation,
                              RequestsChanged, KeepRecords, JournalNote>;

}  // namespace troupe
