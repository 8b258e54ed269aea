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
#include "actors/router/choice_text.h"
#include "actors/router/finished_requests.h"
#include "actors/router/journal.h"
#include "actors/router/journal_keeping.h"
#include "actors/router/request_names.h"
#include "actors/router/room.h"
#include "model/tokenizer/tokenizer.h"
#include "runtime/generation.h"
#include "runtime/unix_time.h"

namespace troupe {

/// Workers that crashed under a sequence, without a new token in between, before it is suspected
/// of crashing them. Coincidence is rare then, and one more crash will tell.
inline constexpr std::uint32_t kStrikesSuspect = 2;

/// The Router's share of the status.
struct RequestCounts {
  std::uint64_t running = 0;  ///< a replica computes it
  std::uint64_t waiting = 0;  ///< accepted, and none does
  std::uint64_t finished = 0;
  std::uint64_t failed = 0;
  std::uint64_t cancelled = 0;
  std::uint64_t replayed = 0;  ///< sequences that were handed to a replica again
  bool operator==(const RequestCounts&) const = default;
};

/// The requests that are not over, the journal, and by what names requests are found. A part of the
/// Router.
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
    std::uint64_t request = 0;
    std::uint64_t owner = 0;    ///< of the request
    std::int32_t priority = 0;  ///< of the request
    Run run;
    bool finished = false;
    ChoiceText text;
    std::optional<TimePoint> last_token;
    GenerationEvent pending;  ///< what has not been delivered yet
    bool dirty = false;       ///< `pending` holds something
  };
  /// Somebody who gets the events of a request.
  struct Reader {
    std::uint64_t ticket = 0;
    std::vector<std::uint32_t> from;  ///< tokens of each choice that it has
    bool waits = false;  ///< for the journal to come to that again; then it gets events
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
    std::vector<float> hidden;                 ///< the same
    std::vector<Reader> readers;
    bool goes_on = false;    ///< although nobody reads it
    // In the journal that is kept; 0: there is nothing to wait for.
    std::uint64_t mark = 0;      ///< of its acceptance
    std::uint64_t end_mark = 0;  ///< of its last choice's end

    bool begun() const { return timing.queued_ms >= 0; }  ///< a replica has begun with it
  };
  using Requests = std::map<std::uint64_t, Request>;

  struct Options {
    std::size_t journal_words_max = 0;
    std::uint64_t journal_file = 0;  ///< see JournalKeeping
    std::string journal_folder;      ///< the same
    UnixTime unix_time;
    std::shared_ptr<const Tokenizer> tokenizer;  ///< null: text stays empty
    KeyShares shares;
  };
  explicit RequestBook(Options options)
      : options_(std::move(options)),
        keeping_(options_.journal_file, options_.journal_folder),
        finished_(options_.shares),
        room_(options_.journal_words_max, options_.shares) {}

  /// What an earlier life of the head has kept. Requests that were not over go on from where their
  /// journal ends, with all their time. Once, before anything else.
  void restore(Journal journal, TimePoint now);
  /// `prepared` has its seed.
  std::uint64_t add(PreparedRequest prepared, TimePoint now);
  void note_begun(Request& request, TimePoint now);
  void add_tokens(JournalTokens tokens);
  /// `request.prompt_logprobs` are all there.
  void keep_prompt_logprobs(std::uint64_t id);
  /// `request.hidden` is whole.
  void keep_hidden(std::uint64_t id);
  void finish_choice(Request& request, Choice& choice, FinishReason reason);
  /// The choice is to run again from where its journal ends.
  void begin_attempt(Choice& choice);

  void finish(std::uint64_t id, TimePoint now);
  void fail(std::uint64_t id, const Error& error, TimePoint now);
  /// It was not accepted after all: nobody finds it.
  void refuse(std::uint64_t id);
  /// Nobody finds it any more. It must be over.
  void forget(std::uint64_t id);
  /// What has been kept for long enough, and what there is no room for.
  void forget_old(TimePoint now);
  /// When the next one has been kept for long enough.
  std::optional<TimePoint> next_forgotten() const { return finished_.next_end(); }

  const Requests& all() const { return requests_; }
  bool contains(std::uint64_t id) const { return requests_.contains(id); }
  Request& at(std::uint64_t id) { return requests_.at(id); }
  /// Null: it is unknown, or its request is over.
  Choice* find(SequenceId sequence);
  /// One whose request is not over.
  Choice& choice_of(SequenceId sequence) { return *find(sequence); }
  const Journal& journal() const { return journal_; }
  JournalKeeping& keeping() { return keeping_; }
  const JournalKeeping& keeping() const { return keeping_; }
  const RequestNames& names() const { return names_; }
  NamedRequest describe(std::uint64_t id) const;
  Room& room() { return room_; }
  /// The earliest deadline and whose it is; null: there are no requests.
  const std::pair<TimePoint, std::uint64_t>* next_deadline() const;

  /// `computing`: requests that replicas compute.
  RequestCounts counts(std::size_t computing) const;
  /// The oldest requests, `count_max` at most.
  std::vector<RequestSummary> list(std::size_t count_max) const;
  /// See Router::violation().
  std::string violation() const;

 private:
  void record(const PreparedRequest& request, const JournalRecord& record);
  Request& open(std::uint64_t id, TimePoint now);
  void restore(std::uint64_t id, TimePoint now);
  void keep_finished(std::uint64_t id, TimePoint ended);
  void note_finished(Request& request, Choice& choice);
  void close(std::uint64_t id);
  void end(std::uint64_t id, const std::optional<Error>& error, TimePoint now);

  Options options_;
  Journal journal_;
  JournalKeeping keeping_;
  RequestNames names_;
  FinishedRequests finished_;
  Room room_;
  Requests requests_;
  std::set<std::pair<TimePoint, std::uint64_t>> deadlines_;
  RequestCounts counts_;  // Without `running` and `waiting`.
  std::size_t over_ = 0;  // Of requests_: all choices have finished.
};

}  // namespace troupe
