#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/frontend/prepared_request.h"
#include "actors/machine.h"
#include "actors/router/journal.h"
#include "actors/router/request_summary.h"
#include "actors/router/stop_matcher.h"
#include "model/tokenizer/detokenizer.h"
#include "model/tokenizer/tokenizer.h"
#include "runtime/generation.h"

namespace troupe {

/// For the metrics: something was measured. Names follow the metrics of the HTTP side.
struct RequestObservation {
  enum class Kind : std::uint8_t {
    kPromptTokens,      ///< value: tokens of an accepted request
    kGenerationTokens,  ///< value: tokens that came with one event
    kQueueTime,         ///< value: seconds until a replica began with the request
    kFirstToken,        ///< value: seconds until its first token
    kInterToken,        ///< value: seconds between tokens of a choice
    kEndToEnd,          ///< value: seconds until a request ended without an error
  };
  Kind kind = Kind::kPromptTokens;
  double value = 0;
};

struct RouterActions : Actions {
  struct Deliver {
    std::uint64_t request = 0;
    GenerationEvent event;
  };
  std::vector<Deliver> deliveries;  ///< to the sinks, in order
  std::vector<RequestObservation> observations;
};

/// The Router's share of the status.
struct RequestCounts {
  std::uint64_t running = 0;  ///< a replica has begun with it
  std::uint64_t waiting = 0;  ///< accepted, not begun
  std::uint64_t finished = 0;
  std::uint64_t failed = 0;
  std::uint64_t cancelled = 0;
  std::uint64_t replayed = 0;  ///< sequences that were handed to a replica again
};

/// A replica that takes sequences.
struct ReplicaEndpoint {
  std::uint32_t id = 0;
  Address address;
  bool slow = false;  ///< gets new sequences only if no other one serves
};

/// Owns every accepted request until it ends: journal, choice of the replica, text, stop strings,
/// deadline. A state machine (see actors/machine.h); one thread calls it.
///
///     submit ─► n sequences ─ Submit ─► Replica ─ SequenceEvents ─► journal ─► text ─► deliver
///
/// A token counts only if it comes from the replica that holds the sequence, in the sequence's
/// current attempt, at the index that the journal ends with: duplicates, old attempts and old lives
/// of a node change nothing. Every accepted request gets exactly one delivery with `request_done`.
class Router {
 public:
  struct Options {
    std::shared_ptr<const Tokenizer> tokenizer;  ///< null: text stays empty
  };
  explicit Router(Options options);

  /// Accepts a request; its events follow as deliveries under the returned number. `random_seed` is
  /// used if it has no seed of its own. Errors: kUnavailable (no replica is ready; the message is
  /// what set_admission said), kResourceExhausted (limits::kRequestsMax, kSequencesMax,
  /// kJournalTokensMax).
  Result<std::uint64_t> submit(PreparedRequest prepared, std::uint64_t random_seed, TimePoint now,
                               RouterActions& actions);
  /// The client went away: ends the request with kCancelled. Unknown numbers are ignored.
  void cancel(std::uint64_t request, TimePoint now, RouterActions& actions);

  /// These serve from now on. Sequences on others are replayed on one of them, or wait for one, as
  /// do those that wait already. A replica at the same address goes on. Older versions are ignored.
  void on_replicas(PlacementVersion version, std::vector<ReplicaEndpoint> replicas, TimePoint now,
                   RouterActions& actions);
  /// The node of these replicas died; `why` names it. Their sequences are replayed on another
  /// replica, or wait for one.
  void on_replicas_lost(const std::vector<std::uint32_t>& replicas, const std::string& why,
                        TimePoint now, RouterActions& actions);
  /// What submit() does while there is no replica: accept and let wait, or refuse with
  /// kUnavailable and `why`. Accepted requests always wait.
  void set_admission(bool waits, std::string why, TimePoint now, RouterActions& actions);

  void on(const Envelope& envelope, TimePoint now, RouterActions& actions);
  void on_wake(TimePoint now, RouterActions& actions);

  RequestCounts counts() const;
  /// The oldest requests that are not over, `count_max` at most.
  std::vector<RequestSummary> list(std::size_t count_max) const;
  const Journal& journal() const { return journal_; }

 private:
  struct Replica {
    Address address;
    std::uint64_t outstanding_tokens = 0;
  };
  /// One sequence, beside what the journal keeps of it.
  struct Choice {
    SequenceId sequence;
    std::optional<std::uint32_t> replica;  ///< none: nobody works on it
    std::uint64_t outstanding_tokens = 0;  ///< its share of the replica's
    bool finished = false;
    bool started = false;
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
    std::vector<TokenOutput> prompt_logprobs;  ///< gathered until complete, then in the first event
  };

  using Requests = std::map<std::uint64_t, Request>;

  void on_event(const Address& from, const SequenceEvent& event, TimePoint now,
                RouterActions& actions);
  void on_undeliverable(const Undeliverable& lost, TimePoint now, RouterActions& actions);
  /// The choice that an event of `from` may speak of; null if it holds it no longer, or never did.
  Choice* current(const Address& from, const SequenceEvent& event, RouterActions& actions);
  void note_start(Request& request, Choice& choice, TimePoint now, RouterActions& actions);
  void accept_prompt_logprobs(Request& request, const SequenceEvent& event);
  void accept_tokens(Request& request, Choice& choice, const SequenceEvent& event, TimePoint now,
                     RouterActions& actions);
  void add_text(Choice& choice, const std::string& text);
  void finish_choice(Request& request, Choice& choice, FinishReason reason);

  Status hand_over(Request& request, Choice& choice, RouterActions& actions);
  void resubmit(std::uint64_t id, Choice& choice, const Error& why, TimePoint now,
                RouterActions& actions);
  /// The replica need not work on it any longer: its load shrinks; with `cancel` it is told.
  void release(Choice& choice, bool cancel, RouterActions& actions);

  void flush(std::uint64_t id, TimePoint now, RouterActions& actions);
  void deliver(std::uint64_t id, Request& request, GenerationEvent event, TimePoint now,
               RouterActions& actions);
  void fail(std::uint64_t id, Error error, TimePoint now, RouterActions& actions);
  void on_replica_lost(std::uint32_t replica, const std::string& why, TimePoint now,
                       RouterActions& actions);
  void fail_lost(const std::string& why, TimePoint now, RouterActions& actions);
  void end(std::uint64_t id);
  void ask_wake(RouterActions& actions) const;

  Options options_;
  PlacementVersion version_;
  std::map<std::uint32_t, Replica> replicas_;
  bool waits_ = false;  ///< requests are accepted without a replica
  std::string not_ready_why_;
  Journal journal_;
  Requests requests_;
  std::set<std::pair<TimePoint, std::uint64_t>> deadlines_;
  std::uint64_t next_request_ = 1;
  std::uint64_t next_sequence_ = 1;
  std::uint64_t running_ = 0, finished_ = 0, failed_ = 0, cancelled_ = 0, replayed_ = 0;
};

}  // namespace troupe
