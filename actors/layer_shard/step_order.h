#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/layer_shard/messages.h"
#include "actors/layer_shard/step_tables.h"
#include "runtime/flat.h"
#include "runtime/tensor_rank.h"

namespace troupe {

/// Where a shard stands among the actors of its replica.
struct ShardPlace {
  std::uint32_t replica_id = 0;
  Ref<ReplicaInbox> replica;
  std::optional<Ref<LayerShardInbox>> previous;  ///< of the stage before; none on the first
  std::optional<Ref<LayerShardInbox>> next;      ///< of the next stage; none on the last
  TensorRank rank{};                             ///< the first one tells the result
};

/// The steps that a shard knows of, from their plan to the next stage or the StepResult. The part
/// of a LayerShard that talks to its Replica and its neighbours.
///
///     StepPlan (+ Hidden) ─► computing ◄─► waiting for experts ... ─► Hidden, or StepResult
///                                │ error, deadline: StepFailed
class StepOrder {
 public:
  explicit StepOrder(ShardPlace place) : place_(std::move(place)) {}

  /// Messages of others than the shard's own replica and neighbour are ignored.
  void on(const StepPlan& plan, const Envelope& envelope, TimePoint now, ShardEffects& effects);
  void on(const Hidden& hidden, const Envelope& envelope, TimePoint now, ShardEffects& effects);
  /// Whether that step is to be forgotten. The next stage hears of it where its hidden rows went:
  /// what the Replica sent there may be lost with their link.
  bool on(const StepAbort& abort, const Envelope& envelope, ShardEffects& effects);

  enum class Computed {
    kWaits,  ///< for the experts' outputs
    kEnded,  ///< passed on, failed, or it had been given up
    kUnknown,
  };
  /// The job of a step has ended.
  Computed on(StepComputed computed, ShardEffects& effects);
  /// All outputs that the step lacked are here.
  void resume(StepId step, ExpertCut cut, ShardEffects& effects);

  /// Hidden rows that left for that node may be lost. The Replica knows which steps are done.
  void lose_passed_on(NodeId node, ShardEffects& effects);
  /// What left for the next stage, or the result, did not arrive. The step is no longer known here.
  void lose_passed_on(StepId step, const Error& error, ShardEffects& effects);
  /// The Replica's node cannot be reached any more: the Replica fails its steps as well and reuses
  /// their blocks, but the StepAborts may be lost. These must not go on.
  std::vector<StepId> lose_replica(NodeId node, ShardEffects& effects);
  /// Hidden rows that came from that node without a plan so far: their end may be lost with it.
  void lose_previous(NodeId node, ShardEffects& effects);
  /// Nothing happens if the step is gone, or given up.
  void fail(StepId step, Error error, ShardEffects& effects);
  /// Forgets a step; while a job has its buffers, that waits for the job.
  void drop(StepId step, ShardEffects& effects);

  /// Tells the Replica of the steps that take long and go on here.
  void say_progress(TimePoint now, ShardEffects& effects);
  /// Steps whose deadline has passed.
  std::vector<StepId> late(TimePoint now) const;
  void arrange_wake(ShardEffects& effects) const;

  /// It goes on: it is neither gone nor given up.
  bool lives(StepId step) const;
  /// It lives, and its job has ended at a cut.
  bool waits(StepId step) const;
  /// All that live.
  std::vector<StepId> all() const;
  /// All that wait.
  std::vector<StepId> waiting() const;
  /// The shard of the stage before, if there is one.
  std::optional<Address> previous() const {
    return place_.previous ? std::optional(place_.previous->address) : std::nullopt;
  }
  std::size_t size() const { return steps_.size(); }

  std::string violation() const;

 private:
  struct Step {
    MessagePtr plan;  ///< with whole tables
    std::optional<Payload> hidden;
    std::vector<std::uint64_t> digests;  ///< of the stages before
    TimePoint deadline;
    TimePoint say_at;  ///< when the Replica hears next that it goes on
    bool begun = false;
    bool computing = false;  ///< a job has its buffers
    bool aborted = false;
  };
  void try_begin(Step& step, ShardEffects& effects);
  void pass_on(StepId id, Step& step, ComputeOutcome outcome, ShardEffects& effects);
  void tell_failed(StepId step, Error error, ShardEffects& effects) const;

  ShardPlace place_;
  StepTables tables_;
  FlatMap<StepId, Step> steps_;
  FlatSet<StepId> aborted_;    ///< the newest; what still comes of them is dropped
  FlatSet<StepId> passed_on_;  ///< the newest whose hidden rows left for the next stage
};

}  // namespace troupe
