#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/layer_shard/expert_routes.h"
#include "actors/layer_shard/messages.h"
#include "runtime/flat.h"

namespace troupe {

/// Rows that every copy refused are asked for again after this long, doubled up to the maximum: a
/// group that is between two versions, or flooded, answers within moments.
inline constexpr Duration kAskAgainMin = std::chrono::milliseconds(5);
inline constexpr Duration kAskAgainMax = std::chrono::milliseconds(200);

/// A step that cannot go on, and why.
struct FailedStep {
  StepId step;
  Error error;
};
using FailedSteps = std::vector<FailedStep>;

/// The part of a LayerShard that asks the expert groups of other devices: which copy of an expert
/// is asked, what happens to a question that is refused, late or lost, and whose outputs are still
/// missing. A step at a cut has questions here until it goes on or ends.
///
///     cut ─► asked ─► answered ─► complete
///             │ ▲ NotHere, lost, late: another copy
///             ▼ │
///            parked, until routes or a peer come, or a pause is over
///
/// Rows that were lost with two nodes in a row may be what killed them: their step fails instead of
/// being sent to a third. A step that fails here has no questions any more.
class ExpertCalls {
 public:
  struct Options {
    DeviceRef device;  ///< the shard's own
    std::shared_ptr<const ExpertRoutes> routes;
    std::map<NodeId, Incarnation> members;  ///< of the placement, this node included
  };
  explicit ExpertCalls(Options options);

  /// Asks for everything that the step lacks.
  void begin(StepId step, ExpertCut cut, TimePoint now, ShardEffects& effects);
  /// Whether the step is at a cut.
  bool knows(StepId step) const { return waiting_.contains(step); }
  /// Whether nothing is missing at the step's cut; also if it has none.
  bool complete(StepId step) const;
  /// The cut of a step that is complete, with all answers; none, if it is at none.
  ExpertCut take(StepId step);
  /// The step has ended; answers that still come are dropped.
  void forget(StepId step);

  /// An answer, taken or not.
  struct Answered {
    std::optional<StepId> step = {};  ///< that waited for it
    bool fits = true;                 ///< else its sender is not to be trusted
  };
  /// What does not fit is asked for elsewhere.
  Answered on_output(const ExpertOutput& output, const Address& from, TimePoint now,
                     ShardEffects& effects);
  /// The group works on it.
  void on_progress(std::uint64_t call, const Address& from, TimePoint now);
  /// The group does not have them, or the question did not arrive.
  void on_refusal(std::uint64_t call, TimePoint now, ShardEffects& effects);
  [[nodiscard]] FailedSteps on_peer_down(NodeId node, TimePoint now, ShardEffects& effects);
  void on_peer_up(NodeId node, TimePoint now, ShardEffects& effects);
  void on_avoided(std::set<DeviceRef> devices);
  [[nodiscard]] FailedSteps on_routes(RoutesChanged changed, TimePoint now, ShardEffects& effects);
  /// Silent groups.
  [[nodiscard]] FailedSteps end_late_calls(TimePoint now, ShardEffects& effects);
  /// Steps that nobody has computed anything for in limits::kStepDeadline.
  [[nodiscard]] FailedSteps end_stalled(TimePoint now);
  /// Pauses that are over.
  void end_pauses(TimePoint now, ShardEffects& effects);

  /// Versions of routes that every open question follows, or newer ones; each is given once.
  std::vector<PlacementVersion> take_settled();
  void arrange_wake(ShardEffects& effects) const;
  /// All that are at a cut.
  std::vector<StepId> steps() const;

  std::string violation() const;

 private:
  /// The life of a node.
  using NodeLife = std::pair<NodeId, Incarnation>;
  struct Call {
    StepId step;
    DeviceRef device;
    Incarnation incarnation;  ///< the life of its node that was asked
    TimePoint deadline;
    std::uint64_t routes = 0;           ///< number of those it follows
    std::size_t outputs = 0;            ///< how many it asks for
    std::optional<NodeLife> lost_with;  ///< what was lost while it had these rows
  };
  using Calls = FlatMap<std::uint64_t, Call>;
  /// A step at a cut.
  struct Waiting {
    ExpertCut cut;                      ///< outputs without a question are parked
    std::size_t lacks = 0;              ///< outputs that did not come yet
    TimePoint heard;                    ///< newest sign that somebody computes for it
    std::optional<NodeLife> lost_with;  ///< what was lost while it had parked ones
    std::set<DeviceRef> refused;        ///< by these, since the last pause
    std::optional<TimePoint> ask_at;    ///< end of the pause after which they are asked again
    std::uint32_t pauses = 0;

    const MissingOutput* first_parked() const;
  };
  using Wanted = std::vector<MissingOutput*>;  ///< in the cut of one step, in its order
  /// What is known of the devices that hold copies, by their numbers in the routes.
  struct Devices {
    std::optional<std::uint32_t> self;
    std::vector<std::uint8_t> unreachable, avoided;
    std::vector<std::uint64_t> load;  ///< outputs that each was asked for and owes
    // Of the question that is being asked.
    std::vector<std::uint8_t> excluded;
    std::vector<Wanted> shares;  ///< what each is to be asked for
  };

  void number_devices();
  CopyView view_for(const Waiting& waiting);
  bool reachable(NodeId node) const;
  void want_parked(Waiting& waiting);
  void ask(StepId step, const std::optional<NodeLife>& lost_with, TimePoint now,
           ShardEffects& effects);
  void ask_device(StepId step, std::uint32_t device, const std::optional<NodeLife>& lost_with,
                  TimePoint now, ShardEffects& effects);
  void park(Waiting& waiting, TimePoint now) const;
  void ask_again(StepId step, TimePoint now, ShardEffects& effects);
  void ask_all_again(TimePoint now, ShardEffects& effects);
  void on_lost_call(std::uint64_t call, TimePoint now, FailedSteps& failed, ShardEffects& effects);
  void on_late_call(std::uint64_t call, TimePoint now, FailedSteps& failed, ShardEffects& effects);
  void end_call(Calls::iterator call);
  /// The question, if it is still open; what it asked for is wanted again.
  std::optional<Call> take_back(std::uint64_t call);
  Error why_stalled(const Waiting& waiting) const;
  void fail(StepId step, Error error, FailedSteps& failed);
  std::string violation_of(StepId step, const Waiting& waiting) const;

  Options options_;
  FlatMap<StepId, Waiting> waiting_;
  Calls calls_;
  Wanted wanted_;  ///< what the step that asks now is to ask for
  std::uint64_t next_call_ = 1;
  std::map<NodeId, Incarnation> down_;  ///< the lives that cannot be reached
  std::set<DeviceRef> avoided_;
  Devices devices_;
  std::uint64_t routes_number_ = 0;
  std::map<std::uint64_t, PlacementVersion> unsettled_;  ///< by number: older questions are open
};

}  // namespace troupe
