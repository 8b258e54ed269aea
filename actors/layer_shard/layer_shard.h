#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "actors/layer_shard/expert_routes.h"
#include "actors/machine.h"

namespace troupe {

/// Rows that every copy refused are asked for again after this long, doubled up to the maximum: a
/// group that is between two versions, or flooded, answers within moments.
inline constexpr Duration kAskAgainMin = std::chrono::milliseconds(5);
inline constexpr Duration kAskAgainMax = std::chrono::milliseconds(200);

/// Rows of a step that wait for an expert elsewhere: the output of `pair` belongs to (row, slot).
struct MissingOutput {
  std::int32_t row = 0;  ///< of the step
  std::int32_t slot = 0;
  std::int32_t expert = 0;
};

/// The experts' inputs of a step at a cut, as far as other devices must compute them.
struct ExpertCut {
  std::int32_t layer = 0;
  std::vector<MissingOutput> missing;  ///< by row and slot
  std::size_t row_bytes = 0;
  Payload rows;  ///< wire type [rows of the step, hidden]
};

/// An answer, to be copied into the step's run before it goes on.
struct ExpertArrival {
  std::vector<MissingOutput> outputs;  ///< in the order of the payload's rows
  Payload payload;                     ///< wire type [outputs, hidden]
};

/// How a compute job ended.
struct ComputeOutcome {
  std::optional<Error> error;
  bool done = false;                      ///< the step left the last layer of this shard
  Payload hidden;                         ///< done, and not the last stage
  std::vector<SequenceResult> sequences;  ///< done, on the last stage
};

struct LayerShardActions : Actions {
  /// Begin a step on the device. `hidden` is empty on the first stage.
  struct Begin {
    std::shared_ptr<const Message> plan;  ///< a StepPlan
    Payload hidden;
  };
  /// Go on with a step whose experts' outputs are all here.
  struct Resume {
    StepId step;
    std::vector<ExpertArrival> arrivals;
  };
  std::vector<Begin> begins;
  std::vector<Resume> resumes;
  std::vector<StepId> releases;  ///< the step's buffers may be used again
  /// Routes (by the number that on_routes gave) that every open question follows, or newer ones.
  std::vector<std::uint64_t> settled;
};

struct LayerShardConfig {
  Address self;
  Address replica;
  std::optional<Address> previous;  ///< the shard of the stage before; none on the first
  std::optional<Address> next;      ///< the shard of the next stage; none on the last
  std::uint32_t replica_id = 0;
  DeviceRef device;
  std::shared_ptr<const ExpertRoutes> routes;
  std::map<NodeId, Incarnation> members;  ///< of the placement, this node included
};

/// One layer range of one replica: takes step plans (and the hidden rows of the stage before), has
/// the device compute, sends rows out to the expert groups that hold their experts and collects the
/// answers, and passes the step on. Waiting for experts is a state, never a blocked thread.
///
///     StepPlan (+ Hidden) ─► computing ─on_cut─► waiting for experts ─► computing ... ─► Hidden,
///                                                 │ NotHere, peer lost: another copy  StepResult
///                                                 └ none left: parked, until routes or a peer come
///                                                                      too late: StepFailed
///
/// Rows that were lost with two nodes in a row may be what killed them: their step fails instead of
/// being sent to a third.
class LayerShard {
 public:
  explicit LayerShard(LayerShardConfig config) : config_(std::move(config)) {}

  void on(const Envelope& envelope, TimePoint now, LayerShardActions& actions);
  void on_wake(TimePoint now, LayerShardActions& actions);

  /// The running job reached a point where experts of other devices are needed. It goes on with the
  /// local ones meanwhile, and ends with an outcome that is not done.
  void on_cut(StepId step, ExpertCut cut, TimePoint now, LayerShardActions& actions);
  void on_computed(StepId step, ComputeOutcome outcome, TimePoint now, LayerShardActions& actions);

  /// A member cannot be reached any more: what it was asked goes to other copies, or waits. It is
  /// asked again after on_peer_up, or when routes come with a newer life of it.
  void on_peer_down(NodeId node, TimePoint now, LayerShardActions& actions);
  void on_peer_up(NodeId node, TimePoint now, LayerShardActions& actions);
  /// Devices to ask only if nobody else has the expert; these and no others.
  void on_avoid(std::set<DeviceRef> devices, TimePoint now, LayerShardActions& actions);
  /// Every later question follows these. Returns their number, which `settled` names once no
  /// question by older ones is open.
  std::uint64_t on_routes(std::shared_ptr<const ExpertRoutes> routes,
                          std::map<NodeId, Incarnation> members, TimePoint now,
                          LayerShardActions& actions);

  std::size_t steps() const { return steps_.size(); }

 private:
  /// Outputs that somebody is, or has to be, asked for.
  struct Wanted {
    std::vector<MissingOutput> outputs;
    /// The life of a node that was lost while it had them.
    std::optional<std::pair<NodeId, Incarnation>> lost_with;
  };
  struct Call {
    StepId step;
    DeviceRef device;
    Incarnation incarnation;  ///< the life of its node that was asked
    TimePoint deadline;
    std::uint64_t routes = 0;  ///< number of those it follows
    Wanted wanted;
  };
  using Calls = std::map<std::uint64_t, Call>;
  struct Step {
    MessagePtr plan;
    std::optional<Payload> hidden;
    TimePoint deadline;
    bool computing = false;  ///< a job has its buffers
    bool begun = false;
    bool aborted = false;
    std::set<std::uint64_t> calls;  ///< unanswered
    std::vector<ExpertArrival> arrivals;
    ExpertCut cut;                    ///< kept until all is answered, to ask again
    Wanted parked;                    ///< nobody can be asked for these now
    std::set<DeviceRef> refused;      ///< by these, since the last pause
    std::optional<TimePoint> ask_at;  ///< end of the pause after which they are asked again
    std::uint32_t pauses = 0;         ///< at this cut
  };

  void on_plan(const MessagePtr& message, TimePoint now, LayerShardActions& actions);
  void on_abort(StepId step, LayerShardActions& actions);
  void on_hidden(const Hidden& hidden, TimePoint now, LayerShardActions& actions);
  void on_output(const Envelope& envelope, const ExpertOutput& output, LayerShardActions& actions);
  void on_refusal(std::uint64_t call, TimePoint now, LayerShardActions& actions);
  void on_lost_call(std::uint64_t call, TimePoint now, LayerShardActions& actions);
  void on_late_call(std::uint64_t call, TimePoint now, LayerShardActions& actions);
  void try_begin(StepId id, Step& step, LayerShardActions& actions);
  void try_resume(StepId id, Step& step, LayerShardActions& actions);

  std::set<DeviceRef> excluded(const Step& step) const;
  bool reachable(NodeId node) const;
  void ask(StepId id, Step& step, Wanted wanted, TimePoint now, LayerShardActions& actions);
  void ask_device(StepId id, Step& step, const DeviceRef& device, Wanted wanted, TimePoint now,
                  LayerShardActions& actions);
  void park(Step& step, Wanted wanted, TimePoint now);
  void ask_again(StepId id, Step& step, TimePoint now, LayerShardActions& actions);
  void ask_all_again(TimePoint now, LayerShardActions& actions);
  Call end_call(Calls::iterator call);

  Error why_late(const Step& step) const;
  void fail(StepId id, Error error, LayerShardActions& actions);
  void drop(StepId id, LayerShardActions& actions);
  /// The end of every turn: what is settled, and when to wake.
  void close_turn(LayerShardActions& actions);

  LayerShardConfig config_;
  std::map<StepId, Step> steps_;
  std::set<StepId> aborted_;    ///< the newest; what still comes of them is dropped
  std::set<StepId> passed_on_;  ///< the newest whose hidden rows left for the next stage
  Calls calls_;
  std::uint64_t next_call_ = 1;
  std::map<NodeId, Incarnation> down_;  ///< the lives that cannot be reached
  std::set<DeviceRef> avoided_;
  std::map<DeviceRef, std::uint64_t> load_;  ///< outputs that each was asked for and owes
  std::uint64_t routes_number_ = 0;
  std::set<std::uint64_t> unsettled_;  ///< numbers of routes that older questions precede
};

}  // namespace troupe
