#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "actors/router/crash_evidence.h"
#include "actors/router/key_shares.h"
#include "actors/router/messages.h"
#include "actors/router/request_book.h"
#include "actors/router/sent_prefixes.h"
#include "runtime/limits.h"

namespace troupe {

/// Attempts of a sequence in a row that may end with a passing error, without a new token in
/// between, before its request fails. A replica has tried for seconds before it gives one up.
inline constexpr std::uint32_t kFailedAttemptsMax = 2 * limits::kReplaysMax;
/// A replica that refused a sequence, or could not be reached, is tried again after this long if
/// there is no other; doubled with every refusal up to the maximum.
inline constexpr Duration kRetryPauseMin = std::chrono::milliseconds(50);
inline constexpr Duration kRetryPauseMax = std::chrono::seconds(2);
/// Tokens of the sequences that one replica holds and has not begun with, and what their rules take
/// on their way as if they were tokens; the others wait here.
/// After a loss everything is handed over again: that must not fill the unsent bytes of a control
/// session, even if a node has eight replicas.
inline constexpr std::size_t kUnstartedTokensMax = 1u << 20;
static_assert(8 * kUnstartedTokensMax * sizeof(TokenId) * 2 <= limits::kControlUnsentBytesMax);

/// Where sequences run: hands them to replicas and takes them back. A part of the Router.
///
///     wait ─► waiting ─ assign: Submit ─► at a replica ─ release ─►
///                ▲                             │
///                ├── pausing ◄── replica lost, moved or refusing
///                └── parked  ◄── no room for more of its tokens
///
/// Those who wait stand in a queue for each owner, which is as long as it must be: an owner has
/// `running_max` requests at replicas, and its part of what replicas have not begun with. Which
/// owner's are computed first is for the replicas to say.
class Placing {
 public:
  using Choice = RequestBook::Choice;

  /// `by_prefix`: replicas keep what they computed, so that it matters who had a like sequence.
  Placing(bool by_prefix, KeyShares shares) : by_prefix_(by_prefix), shares_(std::move(shares)) {}

  bool any_replica() const { return !replicas_.empty(); }
  /// Whether the choice runs at that address.
  bool runs_at(const Choice& choice, const Address& address) const;

  void wait(const Choice& choice);
  void wait_no_more(const Choice& choice);
  /// Hands over those who wait, as far as there is room.
  void assign(RequestBook& book, TimePoint now, RouterEffects& effects);
  /// When the first pause ends.
  std::optional<TimePoint> next_pause_end() const;

  void note_start(Choice& choice);
  void note_progress(Choice& choice);
  /// The replica need not work on it any longer: its load shrinks; with `cancel` it hears of it.
  void release(const Journal& journal, Choice& choice, bool cancel, RouterEffects& effects);
  /// An attempt ended with a passing error: it is tried again. False: give it up.
  bool retry(RequestBook& book, Choice& choice, const Error& why, TimePoint now,
             RouterEffects& effects);
  void on_undeliverable(RequestBook& book, const Undeliverable& lost, TimePoint now,
                        RouterEffects& effects);

  /// These serve from now on, and no others.
  void serve(RequestBook& book, const ReplicasChanged& changed, RouterEffects& effects);
  /// The node of that replica is gone. Its sequences wait for another one.
  void lose(RequestBook& book, std::uint32_t replica, RouterEffects& effects);
  /// That replica finds nothing again of what it computed so far.
  void forget_prefixes(std::uint32_t replica);
  /// It may crash workers: it is taken back, and runs on as the only suspect.
  void suspect(RequestBook& book, Choice& choice, RouterEffects& effects);
  /// It runs no further until unpark(): its replica is told to stop.
  void park(RequestBook& book, Choice& choice, RouterEffects& effects);
  void unpark(const Choice& choice);
  /// Nobody serves any more. What they hold is not taken back.
  void clear() { replicas_.clear(); }

  /// Requests that replicas have begun with, and have not given back.
  std::size_t computing() const { return computing_.size(); }
  /// See Router::violation().
  std::string violation(const RequestBook& book) const;

 private:
  struct Replica {
    Address address;
    std::uint64_t outstanding_tokens = 0;
    std::size_t unstarted_tokens = 0;  ///< of the sequences that it has not begun with
    bool slow = false;
    SentPrefixes sent;
    std::uint32_t forgotten = 0;  ///< how often it has forgotten them
    std::map<std::uint64_t, std::size_t> unstarted_of = {};  ///< unstarted_tokens by owner
  };
  /// Its place among those of its owner who wait: streams that were cut off first, then by
  /// priority, then by arrival.
  using Turn = std::tuple<bool, std::int32_t, SequenceId>;
  static Turn turn_of(const Choice& choice) {
    return {!choice.run.urgent, choice.priority, choice.sequence};
  }
  /// Whoever has something that waits or is at a replica.
  struct Owner {
    std::set<Turn> waiting;                         ///< for a replica
    std::map<std::uint64_t, std::uint32_t> placed;  ///< choices at replicas, by request
  };
  /// The suspect that is being tried, and where.
  struct Trial {
    SequenceId sequence;
    std::uint32_t replica = 0;
  };

  bool hand_over(const RequestBook& book, Choice& choice, RouterEffects& effects);
  std::optional<std::uint32_t> pick(const Choice& choice, std::size_t tokens,
                                    const PrefixChain& chain) const;
  void requeue(RequestBook& book, Choice& choice, bool cancel, RouterEffects& effects);
  TimePoint next_try(Choice& choice, std::uint32_t refusals, TimePoint now) const;
  bool has_unstarted(std::uint64_t owner) const;
  bool assign(std::uint64_t id, std::size_t most, RequestBook& book, RouterEffects& effects);
  void started(Replica& replica, const Choice& choice);
  void forget_idle(std::uint64_t owner);
  static std::vector<SequenceId> sequences_on(const RequestBook& book, std::uint32_t replica);

  bool by_prefix_;
  PlacementVersion version_;
  KeyShares shares_;
  std::map<std::uint32_t, Replica> replicas_;
  std::map<std::uint64_t, Owner> owners_;
  std::map<std::uint64_t, std::uint32_t> computing_;    ///< started choices at replicas, by request
  std::set<std::pair<TimePoint, SequenceId>> pausing_;  ///< before they wait for one again
  std::set<SequenceId> parked_;                         ///< until there is room
  std::optional<Trial> trial_;
};

}  // namespace troupe
