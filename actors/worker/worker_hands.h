#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "actors/base/host.h"
#include "actors/control/head_link.h"
#include "actors/worker/bulk_lane.h"
#include "actors/worker/link_meter.h"
#include "actors/worker/worker_machine.h"
#include "transport/nccl/node.h"

namespace troupe {

/// Starts and ends a node's actors, and hands experts to devices.
class ActorHands {
 public:
  /// `agent` hears of every actor's end.
  /// `nccl`: what tensor-parallel ranks exchange with; may be null.
  ActorHands(Host& host, const Ref<NodeAgentInbox>& agent, std::vector<Device*> devices,
             nccl::Node* nccl = nullptr)
      : host_(&host), agent_(agent), devices_(std::move(devices)), nccl_(nccl) {}

  void carry_out(StartGroup&& start);
  void carry_out(StartShard&& start);
  void carry_out(StartReplica&& start);
  void carry_out(EndActor&& end);
  void carry_out(PublishExperts&& publish);

 private:
  Mail ended(const Address& actor) const;

  Host* host_;
  Ref<NodeAgentInbox> agent_;
  std::vector<Device*> devices_;
  nccl::Node* nccl_;
};

/// What lies around a WorkerMachine. All of it must outlive the actor.
struct WorkerSurroundings {
  std::vector<Device*> devices;  ///< by their index
  HeadLink* link = nullptr;
  BulkLane* lane = nullptr;  ///< null: a cluster of one node
  std::shared_ptr<LinkMeter> meter = {};  ///< of that lane; Worker makes it
  WeightSource* source = nullptr;
  nccl::Node* nccl = nullptr;  ///< null: ranks exchange by messages
  /// The process is to end. Called inside the actor's turn, once; must not block.
  std::function<void(const WorkerExit&)> on_exit;
  /// Which life of which node this is in the cluster from now on; none: ({}, {}). The same; may be
  /// null.
  std::function<void(NodeId, Incarnation)> on_life = {};
  /// Told with every ShowAlive. The same; may be null.
  std::function<void()> on_alive = {};
  std::function<void(const std::string&)> on_other_head = {};
};

/// Carries a WorkerMachine's effects out. What fails comes back as a message: a peer that cannot be
/// expected or gone to is PeerDown.
class WorkerHands {
 public:
  WorkerHands(Host& host, const Ref<NodeAgentInbox>& self, WorkerSurroundings around);
  WorkerHands(WorkerHands&& other) noexcept;
  ~WorkerHands();

  template <class Effect>
  void carry_out(Effect&& effect, const WorkerMachine&) {
    if constexpr (requires { actors_.carry_out(std::move(effect)); })
      actors_.carry_out(std::move(effect));
    else
      carry_out(std::move(effect));
  }

 private:
  void carry_out(ConnectHead&& connect);
  void carry_out(CloseHead&&);
  void carry_out(SeekAlso&&);
  void carry_out(SendAs&& send);
  void carry_out(JoinedCluster&& joined);
  void carry_out(LeaveAddress&& leave);
  void carry_out(HoldMail&& hold);
  void carry_out(EndHold&& end);
  void carry_out(InspectCheckpoint&& inspect);
  void carry_out(ProveTensors&& prove);
  void carry_out(ProveCopies&&);
  void carry_out(WorkerExit&& exit);
  void carry_out(LogLine&& line);
  void carry_out(FencePeer&& fence);
  void carry_out(ForgetPeer&& forget);
  void carry_out(ExpectPeer&& expect);
  void carry_out(ConnectPeer&& connect);
  void carry_out(AskPeer&& ask);
  void carry_out(MeasurePeer&& measure);
  void carry_out(EndMeasuring&& end);
  void carry_out(ReadWeights&& read);
  void carry_out(BuildPart&& build);
  void carry_out(CancelReading&&);
  void carry_out(FreeWeights&& free);
  void carry_out(ProbeDevices&&);
  void carry_out(ShowAlive&&);
  void check(const Peer& peer, const Status& status);
  void forget(const Peer& peer, bool fence);

  Host* host_;
  Ref<NodeAgentInbox> self_;
  WorkerSurroundings around_;
  ActorHands actors_;
  std::optional<Ref<NodeAgentInbox>> member_;  ///< its address in the cluster, as a member
};

}  // namespace troupe
