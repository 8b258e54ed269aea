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
#include "runtime/limits.h"

namespace troupe {

/// Attempts of a sequence in a row that may end with a passing error, without a new token in
/// between, before its request fails. A replica has tried for seconds before it gives one up.
inline constexpr std::uint32_t kAttemptsInVainMax = 2 * limits::kReplaysMax;
/// A replica that refused a sequence, or could not be reached, is tried again after this long if
/// there is no other; doubled with every refusal up to the maximum.
inline constexpr Duration kRetryPauseMin = std::chrono::milliseconds(50);
inline constexpr Duration kRetryPauseMax = std::chrono::seconds(2);
/// Tokens of the sequences that one replica holds and has not begun with; the others wait here.
/// After a loss everything is handed over anew: that must not fill the unsent bytes of a control
/// session, even if a node has eight replicas.
inline constexpr std::size_t kUnstartedTokensMax = 1u << 20;
static_assert(8 * kUnstartedTokensMax * sizeof(TokenId) * 2 <= limits::kControlUnsentBytesMax);
/// Workers that died under a sequence, without a new token in between, before it is suspected of
/// killing them. Coincidence is rare then, and one more death will tell.
inline constexpr std::uint32_t kStrikesSuspect = 2;
/// As many convict a suspect although innocent sequences ran beside it: under steady traffic it
/// would never be alone.
inline constexpr std::uint32_t kStrikesInCompanyMax = 4;

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
///     submit ─► n sequences ─► waiting ─ Submit ─► Replica ─ SequenceEvents ─► journal ─► text
///                                 ▲ replica lost, moved or refusing │             deliver ◄─┘
///
/// A token counts only if it comes from the replica that holds the sequence, in the sequence's
/// current attempt, at the index that the journal ends with: duplicates, old attempts and old lives
/// of a node change nothing. Every accepted request gets exactly one delivery with `request_done`.
///
/// A sequence whose replica is gone is replayed on another one from where its journal ends, or
/// waits for one as long as its deadline allows. Only what seems to kill workers is given up: a
/// sequence is struck when its replica's node dies while it had begun and no token of it came since
/// it was handed over; any new token clears it. With kStrikesSuspect strikes it is a suspect.
/// Suspects are tried one at a time, and only they wait for that. Given up is what was alone there
/// both times, or kills again when it is tried alone.
class Router {
 public:
  struct Options {
    std::shared_ptr<const Tokenizer> tokenizer;  ///< null: text stays empty
    /// Tokens that the journal holds before those who wait longest are refused, and then newcomers.
    std::size_t journal_tokens_max = limits::kJournalTokensMax;
  };
  explicit Router(Options options);

  /// Accepts a request; its events follow as deliveries under the returned number. `random_seed` is
  /// used if it has no seed of its own. Errors: kUnavailable (no replica serves and none is waited
  /// for; the message is what set_admission said), kResourceExhausted (limits::kRequestsMax,
  /// kSequencesMax, or a journal full of requests that run), kInvalidArgument.
  Result<std::uint64_t> submit(PreparedRequest prepared, std::uint64_t random_seed, TimePoint now,
                               RouterActions& actions);
  /// The client went away: ends the request with kCancelled. Unknown numbers are ignored.
  void cancel(std::uint64_t request, TimePoint now, RouterActions& actions);

  /// These serve from now on. Sequences on others are replayed on one of them, or wait for one; so
  /// do those that wait already. A replica at the same address goes on. Older versions are ignored.
  void on_replicas(PlacementVersion version, const std::vector<ReplicaEndpoint>& replicas,
                   TimePoint now, RouterActions& actions);
  /// The node of these replicas died; `why` names it. Their sequences are replayed on another
  /// replica, or wait for one. Replicas that are not known (any more) are ignored.
  void on_replicas_lost(const std::vector<std::uint32_t>& replicas, const std::string& why,
                        TimePoint now, RouterActions& actions);
  /// What submit() does while there is no replica: accept and let wait, or refuse with
  /// kUnavailable and `why`. Accepted requests always wait.
  void set_admission(bool waits, std::string why, TimePoint now, RouterActions& actions);
  /// The cluster stops: every request ends with kUnavailable and `why`, and none is accepted.
  void stop(const std::string& why, TimePoint now, RouterActions& actions);

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
    std::size_t unstarted_tokens = 0;  ///< of the sequences that it has not begun with
    bool slow = false;
  };
  /// One sequence, beside what the journal keeps of it.
  struct Choice {
    SequenceId sequence;
    std::optional<std::uint32_t> replica;  ///< none: nobody works on it
    std::uint64_t outstanding_tokens = 0;  ///< its share of the replica's
    bool finished = false;
    // Of the current attempt:
    std::size_t submitted_tokens = 0;  ///< that it came with
    bool started = false;
    bool progressed = false;  ///< a token came
    // Since the last token:
    std::uint32_t failures = 0;          ///< attempts that ended with an error
    std::uint32_t strikes = 0;           ///< workers that died under it
    std::uint32_t strikes_alone = 0;     ///< of these, while nothing else had begun there
    std::set<std::uint32_t> shunned;     ///< replicas that refused it; others are better
    std::set<std::uint32_t> no_room_at;  ///< replicas whose bounds it does not fit
    TimePoint not_before{};              ///< of the next attempt
    std::optional<StreamDecoder> decoder;
    std::optional<StopMatcher> stops;
    std::optional<TimePoint> last_token;
    GenerationEvent pending;  ///< what has not been delivered yet
    bool dirty = false;       ///< `pending` holds something

    bool suspect() const { return strikes >= kStrikesSuspect; }
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
  /// The suspect that is being tried, and where.
  struct Trial {
    SequenceId sequence;
    std::uint32_t replica = 0;
  };

  using Requests = std::map<std::uint64_t, Request>;

  // router.cpp: requests
  bool make_room(std::size_t tokens, TimePoint now, RouterActions& actions);
  void refuse_waiting(std::size_t tokens, TimePoint now, RouterActions& actions);
  std::size_t excess_tokens(std::size_t more) const;
  void on_event(const Address& from, const SequenceEvent& event, TimePoint now,
                RouterActions& actions);
  /// The choice that an event of `from` may speak of; null if it holds it no longer, or never did.
  Choice* current(const Address& from, const SequenceEvent& event, RouterActions& actions);
  void note_start(Request& request, Choice& choice, TimePoint now, RouterActions& actions);
  void note_progress(Choice& choice);
  void accept_prompt_logprobs(Request& request, const SequenceEvent& event);
  void accept_tokens(Request& request, Choice& choice, const SequenceEvent& event, TimePoint now,
                     RouterActions& actions);
  void add_text(Choice& choice, const std::string& text);
  void finish_choice(Request& request, Choice& choice, FinishReason reason);
  void flush(std::uint64_t id, TimePoint now, RouterActions& actions);
  void deliver(std::uint64_t id, Request& request, GenerationEvent event, TimePoint now,
               RouterActions& actions);
  void fail(std::uint64_t id, Error error, TimePoint now, RouterActions& actions);
  void end(std::uint64_t id);

  // placing.cpp: where sequences run
  void assign(TimePoint now, RouterActions& actions);
  bool hand_over(Request& request, Choice& choice, RouterActions& actions);
  std::optional<std::uint32_t> pick(const Choice& choice, std::size_t tokens) const;
  void wait(const Choice& choice);
  void wait_no_more(const Choice& choice);
  void requeue(Request& request, Choice& choice, bool cancel, RouterActions& actions);
  void retry(std::uint64_t id, Choice& choice, const Error& why, TimePoint now,
             RouterActions& actions);
  TimePoint next_try(Choice& choice, std::uint32_t refusals, TimePoint now) const;
  void on_undeliverable(const Undeliverable& lost, TimePoint now, RouterActions& actions);
  /// The replica need not work on it any longer: its load shrinks; with `cancel` it is told.
  void release(Choice& choice, bool cancel, RouterActions& actions);
  std::vector<SequenceId> sequences_on(std::uint32_t replica) const;
  void on_replica_lost(std::uint32_t replica, const std::string& why, TimePoint now,
                       RouterActions& actions);
  Request& request_of(SequenceId sequence);
  Choice& choice_of(SequenceId sequence);
  /// The end of every turn: who waits is handed over if possible; when to wake.
  void close_turn(TimePoint now, RouterActions& actions);

  Options options_;
  PlacementVersion version_;
  std::map<std::uint32_t, Replica> replicas_;
  bool waits_ = false;  ///< requests are accepted without a replica
  std::string not_ready_why_;
  Journal journal_;
  Requests requests_;
  std::set<SequenceId> waiting_;                        ///< for a replica; the oldest first
  std::set<std::pair<TimePoint, SequenceId>> pausing_;  ///< before they wait for one again
  std::optional<Trial> trial_;
  std::set<std::pair<TimePoint, std::uint64_t>> deadlines_;
  std::uint64_t next_request_ = 1;
  std::uint64_t next_sequence_ = 1;
  std::uint64_t running_ = 0, finished_ = 0, failed_ = 0, cancelled_ = 0, replayed_ = 0;
};

}  // namespace troupe
