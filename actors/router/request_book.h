#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/metrics/request_summary.h"
#include "actors/router/journal.h"
#include "actors/router/room.h"
#include "actors/router/stop_matcher.h"
#include "model/tokenizer/detokenizer.h"
#include "model/tokenizer/tokenizer.h"
#include "runtime/generation.h"

namespace troupe {

/// Workers that crashed under a sequence, without a new token in between, before it is suspected
/// of crashing them. Coincidence is rare then, and one more crash will tell.
inline constexpr std::uint32_t kStrikesSuspect = 2;

/// The Router's share of the status.
struct RequestCounts {
  std::uint64_t running = 0;  ///< a replica has begun with it
  std::uint64_t waiting = 0;  ///< accepted, not begun
  std::uint64_t finished = 0;
  std::uint64_t failed = 0;
  std::uint64_t cancelled = 0;
  std::uint64_t replayed = 0;  ///< sequences that were handed to a replica again
  bool operator==(const RequestCounts&) const = default;
};

/// The requests that are not over, and their journal. A part of the Router.
class RequestBook {
 public:
  /// Where a choice runs, and how its attempts went. Placing writes it.
  struct Run {
    std::optional<std::uint32_t> replica;  ///< none: nobody works on it
    std::uint64_t outstanding_tokens = 0;  ///< its share of the replica's
    // Of the current attempt:
    std::size_t submitted_tokens = 0;  ///< that it came with
    std::uint32_t forgotten = 0;       ///< how often its replica had forgotten prefixes then
    bool started = false;
    bool progressed = false;  ///< a token came, also since a worker was lost under it
    bool urgent = false;      ///< a stream that somebody reads has been cut off: it goes first
    // Since the last token:
    std::uint32_t failures = 0;          ///< attempts that ended with an error
    std::uint32_t strikes = 0;           ///< workers that crashed under it
    std::uint32_t strikes_alone = 0;     ///< of these, while nothing else had begun there
    std::set<std::uint32_t> shunned;     ///< replicas that refused it; others are better
    std::set<std::uint32_t> no_room_at;  ///< replicas whose bounds it does not fit
    TimePoint not_before{};              ///< of the next attempt

    bool suspect() const { return strikes >= kStrikesSuspect; }
  };
  /// One sequence, beside what the journal keeps of it.
  struct Choice {
    SequenceId sequence;
    Run run;
    bool finished = false;
    std::optional<StreamDecoder> decoder;
    std::optional<StopMatcher> stops;
    std::optional<TimePoint> last_token;
    GenerationEvent pending;  ///< what has not been delivered yet
    bool dirty = false;       ///< `pending` holds something
  };
  struct Request {
    std::shared_ptr<const PreparedRequest> prepared;
    std::vector<Choice> choices;
    std::size_t unfinished = 0;
    TimePoint accepted, deadline;
    GenerationTiming timing;
    bool first_event_sent = false;
    std::uint32_t cached_tokens = 0;  ///< of the prompt, when it began
    std::vector<TokenOutput> prompt_logprobs;  ///< gathered until complete, for the first event

    bool begun() const { return timing.queued_ms >= 0; }  ///< a replica has begun with it
  };
  using Requests = std::map<std::uint64_t, Request>;

  explicit RequestBook(std::size_t journal_tokens_max) : room_(journal_tokens_max) {}

  /// `prepared` has its seed. Null tokenizer: text stays empty.
  std::uint64_t add(PreparedRequest prepared, const std::shared_ptr<const Tokenizer>& tokenizer,
                    TimePoint now);
  void note_begun(Request& request, TimePoint now);
  void add_tokens(const JournalTokens& tokens);
  void finish_choice(Request& request, Choice& choice);
  /// The choice is to run again from where its journal ends.
  void begin_attempt(Choice& choice);

  void finish(std::uint64_t id);
  void fail(std::uint64_t id, bool cancelled);

  const Requests& all() const { return requests_; }
  bool contains(std::uint64_t id) const { return requests_.contains(id); }
  Request& at(std::uint64_t id) { return requests_.at(id); }
  Request& request_of(SequenceId sequence) { return at(journal_.find(sequence)->request); }
  Choice& choice_of(SequenceId sequence);
  const Journal& journal() const { return journal_; }
  Room& room() { return room_; }
  /// The earliest deadline and whose it is; null: there are no requests.
  const std::pair<TimePoint, std::uint64_t>* next_deadline() const;

  RequestCounts counts() const;
  /// The oldest requests, `count_max` at most.
  std::vector<RequestSummary> list(std::size_t count_max) const;
  /// See Router::violation().
  std::string violation() const;

 private:
  void end(std::uint64_t id);

  Journal journal_;
  Room room_;
  Requests requests_;
  std::set<std::pair<TimePoint, std::uint64_t>> deadlines_;
  std::uint64_t next_request_ = 1;
  std::uint64_t next_sequence_ = 1;
  RequestCounts counts_;  // without `waiting`
};

}  // namespace troupe
