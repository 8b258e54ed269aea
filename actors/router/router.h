#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "actors/router/messages.h"
#include "actors/router/placing.h"
#include "actors/router/request_book.h"
#include "actors/router/told_again.h"

namespace troupe {

/// Tokens of which latecomers are told in one turn: some milliseconds of making text, which no
/// stream notices.
inline constexpr std::size_t kToldTokensATurn = 2048;

/// Owns every accepted request until it ends: journal, choice of the replica, text, stop strings,
/// deadline; and what it gave for a while longer, for those who ask again. A machine (see
/// actors/base/shell.h).
///
///     SubmitRequest ─► sequences ─► waiting ─ Submit ─► Replica ─ SequenceEvents ─► journal
///                                     ▲                    │                           │
///                                     └─ lost, moved, refusing      DeliverEvent ◄── text
///
/// A token counts only if it comes from the replica that holds the sequence, in the sequence's
/// current attempt, at the index that the journal ends with: duplicates, old attempts and old lives
/// of a node change nothing. Every reader of an accepted request gets exactly one delivery with
/// `request_done`.
///
/// Where the journal is kept, nothing of a request leaves before its acceptance, with its seed, is
/// on storage: what follows would come out the same again. Its end, well or not, waits as well. If
/// storage fails, a request whose acceptance it did not get is refused, as are newcomers until it
/// works again; those that it has go on, and end without waiting for it.
///
/// A sequence whose replica is gone is replayed on another one from where its journal ends, or
/// waits for one as long as its deadline allows, and never ends for want of room. Only what seems
/// to crash workers is given up, on evidence: a sequence is struck when a worker that was in a step
/// of it crashed, and no token of it came since it was handed over; any new token clears it. With
/// kStrikesSuspect strikes it is a suspect. Suspects are tried one at a time, and only they wait
/// for that. A request is given up if it was alone both times, or crashes a worker when it is tried
/// alone.
class Router {
 public:
  using Inbox = RouterInbox;
  using Effects = RouterEffects;

  struct Options {
    std::shared_ptr<const Tokenizer> tokenizer;  ///< null: text stays empty
    /// What the journal may come to; see Room.
    std::size_t journal_words_max = limits::kJournalWordsMax;
    /// Where it goes to storage, see JournalKeeping; 0: nowhere.
    std::uint64_t journal_file = 0;
    std::string journal_folder = "the state folder";  ///< for people
    std::shared_ptr<Journal> journal = {};  ///< of an earlier life, which it takes; null: none
    UnixTime started = {};                  ///< now
    bool prefix_caching = true;  ///< replicas find rows again: sequences go where theirs may be
    KeyShares shares = {};
    Ref<SupervisorInbox> supervisor = {};  ///< hears what becomes of a copy
    /// A test's: called with tokens as they come, while their request is in hand.
    std::function<void(std::span<const TokenOutput>)> on_tokens = {};
  };
  explicit Router(Options options);

  void on(const SequenceEvents& events, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const Undeliverable& lost, const Envelope& envelope, TimePoint now, Effects& effects);

  /// RequestAccepted follows in the same turn, before any event of the request. Errors:
  /// kUnavailable (no replica serves and none is waited for: the message is what AdmissionChanged
  /// said; or trouble()), kResourceExhausted (limits::kRequestsMax, kSequencesMax, or no room in
  /// the journal, for all or for its owner), kInvalidArgument.
  /// A key that its owner has used before: as AttachReader, or kInvalidArgument.
  void on(SubmitRequest submit, TimePoint now, Effects& effects);
  /// RequestAccepted, then what the request gave so far, then what follows. kNotFound.
  void on(AttachReader attach, TimePoint now, Effects& effects);
  void on(FindRequests find, TimePoint now, Effects& effects);
  /// Without a reader a request ends with kCancelled, unless it has a key or was accepted by an
  /// earlier life. Unknown numbers are ignored.
  void on(CancelRequest cancel, TimePoint now, Effects& effects);
  /// Requests whose acceptance is among it may be answered.
  void on(JournalKept kept, TimePoint now, Effects& effects);
  void on(JournalFailed failed, TimePoint now, Effects& effects);
  /// From a new file on the journal is copied to a standby; CopyComplete or CopyBroken follows.
  void on(CopyJournal copy, TimePoint now, Effects& effects);
  void on(JournalCopied copied, TimePoint now, Effects& effects);
  void on(CopyNoMore, TimePoint now, Effects& effects);
  /// Sequences on replicas that are not listed are replayed on one that is, or wait for one. A
  /// replica at the same address goes on. Older versions are ignored.
  void on(ReplicasChanged changed, TimePoint now, Effects& effects);
  /// Remembers who was in a step there, should word come that it crashed.
  void on(LifeLost lost, TimePoint now, Effects& effects);
  /// Ends with kInternal what has crashed workers again and again.
  void on(LifeCrashed crashed, TimePoint now, Effects& effects);
  /// Their sequences are replayed on another replica, or wait for one. Replicas that are not known
  /// (any more) are ignored.
  void on(ReplicasLost lost, TimePoint now, Effects& effects);
  void on(PrefixesForgotten forgotten, TimePoint now, Effects& effects);
  /// Accepted requests always wait.
  void on(AdmissionChanged changed, TimePoint now, Effects& effects);
  /// Every request ends with kUnavailable and `why`, and none is accepted.
  void on(RequestsEnd end, TimePoint now, Effects& effects);

  void on_wake(TimePoint now, Effects& effects);
  void end_turn(TimePoint now, Effects& effects);
  std::string violation() const;

  /// Why the storage lets nobody be accepted now; empty: it does.
  const std::string& trouble() const { return book_.keeping().trouble(); }
  RequestCounts counts() const { return book_.counts(placing_.computing()); }
  /// The oldest requests that are not over, `count_max` at most.
  std::vector<RequestSummary> list(std::size_t count_max) const { return book_.list(count_max); }
  const Journal& journal() const { return book_.journal(); }

 private:
  using Choice = RequestBook::Choice;
  using Request = RequestBook::Request;

  Result<std::uint64_t> accept(SubmitRequest submit, TimePoint now);
  void share_room(Effects& effects);

  void on_event(const Address& from, const SequenceEvent& event, TimePoint now, Effects& effects);
  /// The choice that an event of `from` may speak of; null if it holds it no longer, or never did.
  Choice* current(const Address& from, const SequenceEvent& event, Effects& effects);
  void retry(std::uint64_t id, Choice& choice, const Error& why, TimePoint now, Effects& effects);
  static void note_prefix(Request& request, const Journal::Sequence& sequence,
                          const SequenceEvent& event, Effects& effects);
  void note_start(Request& request, Choice& choice, TimePoint now, Effects& effects);
  void accept_prompt_logprobs(Request& request, const SequenceEvent& event);
  bool accept_hidden(Request& request, const SequenceEvent& event);
  void accept_tokens(Request& request, Choice& choice, const SequenceEvent& event, TimePoint now,
                     Effects& effects);
  void measure_tokens(Request& request, Choice& choice, std::size_t count, TimePoint now,
                      Effects& effects);
  void add_text(Choice& choice, const std::string& text);
  void finish_choice(Request& request, Choice& choice, FinishReason reason, TimePoint now);

  // router_readers.cpp
  const RequestNames::Group* group_of_key(const PreparedRequest& prepared) const;
  void attach(std::uint64_t ticket, std::uint64_t id, std::vector<std::uint32_t> from, bool follow,
              TimePoint now, Effects& effects);
  void catch_up(std::uint64_t id, const Request& request);
  /// Somebody who comes later, and is being told what was there before.
  struct Latecomer {
    std::uint64_t ticket = 0;
    std::uint64_t request = 0;
    ToldAgain told;
    bool follows = false;  ///< and is a reader like any other then, if the request is not over
  };
  void tell_latecomers(std::size_t tokens, TimePoint now, Effects& effects);
  bool tell_more(Latecomer& latecomer, std::size_t& tokens, TimePoint now, Effects& effects);
  /// What is not told before storage has what the journal says of it: what a request has to tell,
  /// by its number; how it failed; that it was deleted.
  using Held = std::variant<std::uint64_t, DeliverEvent, RequestsFound>;
  void tell_when_kept(Held news, TimePoint now, Effects& effects);
  void tell(Held news, std::uint64_t mark, TimePoint now, Effects& effects);
  void stop_waiting(Effects& effects, TimePoint now);
  void stop_trusting(Effects& effects, TimePoint now);
  void wait_for_all(TimePoint now);
  /// When the storage, or the copy, is given up if it says nothing.
  std::optional<TimePoint> patience_ends() const;
  bool held(const Request& request);

  void flush(std::uint64_t id, TimePoint now, Effects& effects);
  static DeliverEvent delivery(std::uint64_t id, Request& request, GenerationEvent event,
                               TimePoint now);
  /// Nobody computes it any more. The last that its readers hear of it.
  DeliverEvent give_up(std::uint64_t id, const Error& error, TimePoint now, Effects& effects);
  void fail(std::uint64_t id, Error error, TimePoint now, Effects& effects);

  Options options_;
  RequestBook book_;
  Placing placing_;
  CrashEvidence evidence_;
  AdmissionChanged admission_{false, "The cluster is not ready yet; try again later."};
  RequestCounts told_;               ///< with the last RequestsChanged
  std::string told_trouble_;         ///< the same
  std::vector<std::uint64_t> over_;  ///< in an earlier life, which did not say so any more
  struct Unkept {
    TimePoint since;
    std::uint64_t mark = 0;
    Held news;
  };
  std::deque<Unkept> unkept_;  ///< the oldest first
  std::deque<Latecomer> latecomers_;  ///< whose turn it is first
};

}  // namespace troupe
