#pragma once

#include <cassert>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/node_agent/node_agent.h"
#include "actors/worker/serving.h"
#include "actors/worker/weight_store.h"
#include "actors/worker/worker_effects.h"

namespace troupe {

/// The machine of a NodeAgentInbox: membership (NodeAgent), weights (WeightStore) and the node's
/// actors (Serving) in one turn.
///
///     message ─► NodeAgent ─► its effects, in their order ─┬─► WeightStore, Serving ─► effects
///                   ▲                                      └─► effects
///                   └── loaded, load_failed, settled ◄── PieceRead, PartRead, PartBuilt, ...
///
/// A version on its way from the disk to serving:
///
///     LoadVersion ─► waiting ─ actors of earlier versions have ended ─► reading ─ PartRead ─►
///     building ─ PartBuilt ─► adopted
class WorkerMachine {
 public:
  using Inbox = NodeAgentInbox;
  using Effects = WorkerEffects;

  WorkerMachine(NodeAgentOptions options, NodeContext context);

  /// What a node hears from the head and from its peers is the agent's.
  template <class T>
    requires TakesWire<NodeAgentInbox, T>
  void on(const T& message, const Envelope& envelope, TimePoint now, Effects& effects) {
    ask(now, effects, [&](AgentEffects& a) { agent_.on(message, envelope, now, a); });
  }
  void on(HeadUp up, TimePoint now, Effects& effects);
  void on(HeadDown down, TimePoint now, Effects& effects);
  void on(LeaveCluster leave, TimePoint now, Effects& effects);
  void on(DeviceFailed failed, TimePoint now, Effects& effects);
  void on(PeerUp up, TimePoint now, Effects& effects);
  void on(PeerDown down, TimePoint now, Effects& effects);
  void on(PeerCorrupt peer, TimePoint now, Effects& effects);
  void on(RoutesSettled settled, TimePoint now, Effects& effects);
  void on(CheckpointInspected inspected, TimePoint now, Effects& effects);
  void on(PieceRead piece, TimePoint now, Effects& effects);
  void on(PartRead read, TimePoint now, Effects& effects);
  void on(PartBuilt built, TimePoint now, Effects& effects);
  void on(FilesChanged changed, TimePoint now, Effects& effects);
  void on(ProofsRead read, TimePoint now, Effects& effects);
  void on(CopyDiffers differs, TimePoint now, Effects& effects);
  void on(CopiesProven proven, TimePoint now, Effects& effects);
  void on(LinkResult result, TimePoint now, Effects& effects);
  void on(Ended ended, TimePoint now, Effects& effects);
  void on_wake(TimePoint now, Effects& effects);
  void end_turn(TimePoint now, Effects& effects);
  std::string violation() const;

  const NodeAgent& agent() const { return agent_; }
  const WeightStore& weights() const { return weights_; }
  /// During a membership, and after it while the role is kept.
  const std::optional<Serving>& serving() const { return serving_; }

 private:
  struct Loading {
    enum class State : std::uint8_t { kWaiting, kReading, kBuilding };
    VersionWorkPtr work;
    State state = State::kWaiting;
    std::multiset<Address> awaited;  ///< actors that hold memory which this version may need
    TimePoint deadline;              ///< of the wait
    Reservation memory;                        ///< while reading
    std::shared_ptr<Preparation> preparation;  ///< while building
    std::size_t untold = 0;                    ///< pieces read since proofs were told
  };

  /// Asks the agent, and carries out what it wants as far as that is this machine's.
  template <class Question>
  void ask(TimePoint now, Effects& effects, const Question& question) {
    AgentEffects wanted;
    question(wanted);
    for (auto& effect : wanted.take())
      std::visit([&](auto& e) { carry_out(std::move(e), now, effects); }, effect);
  }
  /// What the hands do. An agent says everything with SendAs.
  template <class E>
  void carry_out(E effect, TimePoint, Effects& effects) {
    if constexpr (std::same_as<E, Send> || std::same_as<E, Tell>)
      assert(!"an agent says everything with SendAs");
    else
      effects.add(std::move(effect));
  }
  void carry_out(JoinedCluster joined, TimePoint now, Effects& effects);
  void carry_out(StopServing stop, TimePoint now, Effects& effects);
  void carry_out(SuspendServing suspend, TimePoint now, Effects& effects);
  void carry_out(ResumeServing resume, TimePoint now, Effects& effects);
  void carry_out(LetWeightsGo let_go, TimePoint now, Effects& effects);
  void carry_out(WorkerExit exit, TimePoint now, Effects& effects);
  void carry_out(PeerLost lost, TimePoint now, Effects& effects);
  void carry_out(PeerDown down, TimePoint now, Effects& effects);
  void carry_out(PeerUp up, TimePoint now, Effects& effects);
  void carry_out(AvoidDevices avoid, TimePoint now, Effects& effects);
  void carry_out(DiscardTensors discard, TimePoint now, Effects& effects);
  void carry_out(DropVersion drop, TimePoint now, Effects& effects);
  void carry_out(LoadVersion load, TimePoint now, Effects& effects);
  void carry_out(ActivateVersion activate, TimePoint now, Effects& effects);
  void carry_out(RetireVersion retire, TimePoint now, Effects& effects);

  Ref<RouterInbox> router() const { return {kHeadNode, agent_.head()}; }
  void begin_reading(TimePoint now, Effects& effects);
  void report_progress(TimePoint now, Effects& effects);
  void tell_proofs(TimePoint now, Effects& effects);
  void fail_load(const Error& error, TimePoint now, Effects& effects);
  void note_ending();
  void free_garbage(Effects& effects);
  void forget_load();
  NodeProgress progress(TimePoint now);

  NodeAgent agent_;
  NodeContext context_;
  WeightStore weights_;
  std::optional<Serving> serving_;
  std::optional<Loading> loading_;
  std::weak_ptr<Preparation> superseded_;  ///< the newest that is not wanted: it has claimed memory
  std::multiset<Address> ending_;  ///< actors that were told to end, and may hold memory
  TimePoint next_second_{};
};

}  // namespace troupe
