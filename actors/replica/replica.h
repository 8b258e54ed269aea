#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/base/effects.h"
#include "actors/interfaces.h"
#include "actors/replica/chunk_size.h"
#include "actors/replica/fair_turns.h"
#include "actors/replica/kv_blocks.h"
#include "actors/replica/plan_step.h"
#include "actors/replica/replica_config.h"
#include "runtime/step.h"

namespace troupe {

/// After a step that failed for a passing reason nothing is planned for this long, doubled with
/// every further one up to the maximum; a step that succeeds ends that.
inline constexpr Duration kStepRetryMin = std::chrono::milliseconds(20);
inline constexpr Duration kStepRetryMax = std::chrono::milliseconds(500);
/// Steps in a row that may fail under a sequence before the Router has to find another place for
/// it.
inline constexpr std::uint32_t kStepFailuresMax = 8;
/// Steps in a row after which a sequence may be what makes them fail: it gets steps of its own.
inline constexpr std::uint32_t kStepFailuresSuspect = 2;
static_assert(kStepFailuresSuspect < kStepFailuresMax);

/// The canary's in plans and results; the Router gives ids from 1 up.
inline constexpr SequenceId kCanarySequence{~std::uint64_t{0}};

/// The report differs from the last one that was given; ReplicaHands keeps it for the node's agent.
struct ReportChanged {
  ReplicaReport report;
};

/// The scheduler of one data-parallel replica.
///
///     Submit ─► waiting ─► running ─ StepPlan ─► shards ─ StepResult ─► tokens ─► SequenceEvents
///                  ▲ preempted │
///
/// A step is a transaction: the positions in the KV cache and the new tokens count when its
/// StepResult comes. A sequence is in one step at a time at most; its blocks are freed only while
/// it is in none. What a step that came back left in full blocks is found by later sequences that
/// begin alike (KvBlocks); of them only what is new is computed, the last row in any case.
///
/// A step that fails is run again after a pause. So that one poisonous sequence does not hold the
/// others up, those whose steps failed twice in a row, or once for a reason that will not pass, are
/// run one at a time, in turn with the rest, and pause each for itself: what may pass has time to,
/// also where the others' steps succeed. An attempt ends with an error after kStepFailuresMax of
/// them, and the Router tries elsewhere; or when a step of it alone fails for a reason that will
/// not pass. A row that has no numbers ends its own sequence, and no other's step.
class Replica {
 public:
  using Inbox = ReplicaInbox;
  using Effects = troupe::Effects<ReportChanged>;

  explicit Replica(ReplicaConfig config);

  void on(const Submit& submit, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const Cancel& cancel, const Envelope& envelope, TimePoint now, Effects& effects);
  /// Of the Supervisor; one at a time.
  void on(const RunCanary& order, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const ForgetPrefixes& order, const Envelope& envelope, TimePoint now, Effects& effects);
  /// Of the replica's own shards; others are ignored.
  void on(const StepResult& result, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const StepProgress& progress, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const StepFailed& failed, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const Undeliverable& lost, const Envelope& envelope, TimePoint now, Effects& effects);
  /// Plans to the node's shards, or results of them, may be lost.
  void on(PeerDown down, TimePoint now, Effects& effects);
  /// All sequences are dropped; what their full blocks hold is found again.
  void on(HeadChanged changed, TimePoint now, Effects& effects);
  void on_wake(TimePoint now, Effects& effects);
  /// Plans what can be planned, then reports, then tells the Router: so a report is never older
  /// than the news of its sequences.
  void end_turn(TimePoint now, Effects& effects);
  std::string violation() const;

  ReplicaReport report() const;

 private:
  struct Sequence {
    Submit submit;                ///< without its tokens
    std::vector<TokenId> tokens;  ///< prompt and output
    std::vector<KvKey> keys;      ///< of their full blocks
    std::int32_t prompt_length = 0;
    std::int32_t computed = 0;       ///< positions in the KV cache
    std::int32_t prompt_scored = 1;  ///< first prompt position whose log-probability is not known
    std::int32_t hidden_given = 0;   ///< hidden states that the Router was told
    KvTable table;
    std::int32_t backfills = 0;  ///< newcomers that went ahead of it, since it did not fit
    std::uint32_t failures = 0;  ///< steps of it that failed since the last that did not
    TimePoint not_before{};      ///< of its next step, as a suspect
    bool busy = false;           ///< in a step
    bool started = false;        ///< the Router knows that it began
    bool cancelled = false;      ///< to be dropped when its step ends

    bool suspect() const { return failures >= kStepFailuresSuspect; }
    std::int32_t length() const { return static_cast<std::int32_t>(tokens.size()); }
    std::uint32_t output() const { return static_cast<std::uint32_t>(length() - prompt_length); }
    /// Positions whose rows need not be computed if they are there: all that yield nothing.
    std::int32_t findable() const {
      if (submit.pooling == Pooling::kAll) return std::min(length() - 1, hidden_given);
      const bool scoring = submit.prompt_logprobs >= 0 && prompt_scored < prompt_length;
      return std::min(length(), scoring ? prompt_scored : length()) - 1;
    }
    /// Whether the row at `position` yields the log-probability of the prompt token after it.
    bool scores(std::int32_t position) const {
      return submit.prompt_logprobs >= 0 && position + 1 >= prompt_scored &&
             position + 1 < prompt_length;
    }
    /// How many of the rows from `first` to `end` yield hidden states: the last ones.
    std::int32_t hidden_rows(std::int32_t first, std::int32_t end) const {
      if (submit.pooling == Pooling::kNone) return 0;
      const std::int32_t next = submit.pooling == Pooling::kAll ? hidden_given : prompt_length - 1;
      return std::max(0, std::min(end, prompt_length) - std::max(first, next));
    }
  };
  /// What a step computes of one sequence: rows from `computed` on.
  struct Share {
    std::uint64_t key = 0;
    std::int32_t rows = 0;
    bool sample = false;
    std::int32_t hidden = 0;  ///< rows that yield hidden states
  };
  struct Step {
    TimePoint began;
    TimePoint deadline;  ///< of silence
    std::int32_t rows = 0, prompt_rows = 0;
    bool express = false;
    Duration passed_for{};  ///< it stood still, for express steps
    std::vector<Share> shares;
  };
  /// No step is planned for a while after one that failed.
  struct Pause {
    Duration length{};
    TimePoint until{};
  };
  struct Next {
    std::uint64_t arrival = 1;
    StepId step;
  };
  struct Express {
    /// Who has come, or has ended one, since it was asked last, and their weights.
    std::map<std::uint64_t, float> owners;
    /// How long steps may still be passed: grows with their own time, and may be less than none.
    Duration credit = limits::kStepTarget;
  };
  struct Reported {
    std::optional<ReplicaReport> newest;
    std::uint64_t preemptions = 0;
  };
  struct Suspects {
    bool turn = false;            ///< the next step is one's, if there are any
    std::optional<TimePoint> at;  ///< when the first of those that pause may have one
  };
  /// Sequences by queue_key().
  using Sequences = std::map<std::uint64_t, Sequence>;
  /// A sequence of the Supervisor's, in running_ as kCanaryKey once there is room for all of it.
  /// The Router does not know of it; it is never why another is preempted, and a step that fails
  /// ends it.
  struct Canary {
    RunCanary order;
    TimePoint deadline;
    std::vector<std::uint64_t> digests;  ///< as CanaryResult's, so far
  };
  static constexpr std::uint64_t kCanaryKey = 0;  ///< before all others
  struct Owners {
    std::map<std::uint64_t, std::set<std::uint64_t>> queues;  ///< keys of those that wait
    LastServed served;
  };
  /// What the planner is told.
  struct Turns {
    std::vector<PlanSequence> running, waiting;
  };

  void cancel(SequenceId id, std::uint32_t attempt);
  std::optional<Error> refusal(const Submit& submit) const;
  std::optional<Error> misfit(const Step& step, const StepResult& result) const;
  void commit(const Share& share, const SequenceResult& result);
  void fail_step(StepId id, const Error& error, TimePoint now, Effects& effects);
  void fail_share(const Share& share, const Error& error, bool own, TimePoint now);
  FinishReason finish_of(const Sequence& sequence) const;
  bool fits_alone(std::int64_t tokens) const;
  Error too_long(std::int64_t tokens) const;
  void forget(std::uint64_t key);

  void admit_canary();
  bool set_canary_aside();
  void commit_canary(const Share& share, const StepResult& step, const SequenceResult& result,
                     Effects& effects);
  void end_canary(std::optional<Error> error, Effects& effects);
  void tell_canary(CanaryResult result, Effects& effects) const;

  bool plan(TimePoint now, Effects& effects);
  StepChoice choose(TimePoint now);
  bool others_wait() const;
  StepChoice choose_together() const;
  Turns turns(const PlanLimits& limits) const;
  double stretch_for(const Turns& all, std::size_t room) const;
  bool is_burst(const Turns& all, std::size_t room) const;
  bool make_way();
  bool express_may_begin();
  bool somebody_may_go_ahead() const;
  void note_time(const Step& step, TimePoint now);
  StepChoice choose_express() const;
  bool give_place_back();
  Sequences::node_type unqueue(Sequences::iterator waiting);
  bool found_soon(std::uint64_t key, const Sequence& sequence) const;
  StepChoice choose_suspect(TimePoint now);
  StepChoice choose_suspect(std::uint64_t key, bool preempting) const;
  PlanLimits plan_limits() const;
  std::size_t places_left(const PlanLimits& limits) const;
  PlanQuestions plan_questions() const;
  void keep_travelling(StepChoice& choice) const;
  void keep_hidden_travelling(StepChoice& choice) const;
  const Sequence& sequence_at(std::uint64_t key) const;
  void admit(const PlannedRows& planned);
  void preempt(std::uint64_t key);
  StepSequence rows_of(const Sequence& sequence, const PlannedRows& planned) const;

  bool own_shard(const Address& from) const;
  bool from_supervisor(const Address& from) const;
  bool obeys(const Envelope& order, Effects& effects) const;
  std::string violation_of_sequences() const;
  std::string violation_of_blocks() const;
  std::string violation_of_steps() const;

  ReplicaConfig config_;
  KvBlocks kv_;
  Sequences running_, waiting_;
  Owners owners_;
  std::unordered_map<SequenceId, std::uint64_t> keys_;  ///< of the sequences that are not cancelled
  std::optional<Canary> canary_;                        ///< until its result has been told
  std::map<StepId, Step> steps_;
  std::vector<SequenceEvent> events_;  ///< for the Router, at the end of the turn
  Next next_;
  ChunkSize chunk_;
  Pause pause_;  ///< after the last step, if that failed
  Suspects suspects_;
  Express express_;
  Reported reported_;
};

}  // namespace troupe
