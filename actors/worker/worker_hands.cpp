#include "actors/worker/worker_hands.h"

#include <utility>

#include "actors/base/shell.h"
#include "actors/expert_group/group_hands.h"
#include "actors/layer_shard/layer_shard.h"
#include "actors/layer_shard/shard_hands.h"
#include "actors/replica/replica_hands.h"
#include "runtime/log.h"

namespace troupe {

// --- Actors -------------------------------------------------------------------------------------

Mail ActorHands::ended(const Address& actor) const {
  return Mail({}, agent_.address, local_message_of<NodeAgentInbox>(Ended{actor}));
}

void ActorHands::carry_out(StartGroup&& start) {
  Device& device = *devices_[start.device];
  host_->spawn(
      start.self.address,
      [host = host_, self = start.self, &device, row_bytes = start.row_bytes,
       pass =
           std::make_shared<std::unique_ptr<ExpertPass>>(std::move(start.pass))](const Life& life) {
        return std::make_unique<Shell<ExpertGroup, GroupHands>>(
            *host, self.address, ExpertGroup(row_bytes),
            GroupHands(*host, self, device, std::move(*pass), life));
      },
      ended(start.self.address));
}

void ActorHands::carry_out(StartShard&& start) {
  Device& device = *devices_[start.device];
  std::optional<nccl::Carrier> nccl;
  if (nccl_) nccl = nccl_->carrier(start.device);
  host_->spawn(
      start.self.address,
      [host = host_, self = start.self, &device, nccl, config = std::move(start.config),
       compute = std::make_shared<std::unique_ptr<ShardCompute>>(std::move(start.compute))](
          const Life& life) {
        return std::make_unique<Shell<LayerShard, ShardHands>>(
            *host, self.address, LayerShard(config),
            ShardHands(*host, config, device, std::move(*compute), life, nccl));
      },
      ended(start.self.address));
}

void ActorHands::carry_out(StartReplica&& start) {
  host_->spawn(
      start.self.address,
      [host = host_, self = start.self, config = std::move(start.config),
       reports = std::move(start.reports)](const Life&) {
        return std::make_unique<Shell<Replica, ReplicaHands>>(*host, self.address, Replica(config),
                                                              ReplicaHands(reports));
      },
      ended(start.self.address));
}

void ActorHands::carry_out(EndActor&& end) { host_->end(end.actor); }

void ActorHands::carry_out(PublishExperts&& publish) {
  devices_[publish.device]->publish(std::move(publish.experts), std::move(publish.serving));
}

// --- The worker ---------------------------------------------------------------------------------

WorkerHands::WorkerHands(Host& host, const Ref<NodeAgentInbox>& self, WorkerSurroundings around)
    : host_(&host),
      self_(self),
      around_(std::move(around)),
      actors_(host, self, around_.devices, around_.nccl) {}

WorkerHands::WorkerHands(WorkerHands&& other) noexcept
    : host_(other.host_),
      self_(other.self_),
      around_(std::move(other.around_)),
      actors_(std::move(other.actors_)),
      member_(std::exchange(other.member_, std::nullopt)) {}

WorkerHands::~WorkerHands() {
  if (member_) (void)host_->post().detach(member_->address);
}

// --- The head ---

void WorkerHands::carry_out(ConnectHead&& connect) {
  if (connect.again) around_.link->stay();
  around_.link->connect();
}
void WorkerHands::carry_out(CloseHead&&) { around_.link->close(); }

void WorkerHands::carry_out(SeekAlso&& seek) {
  around_.link->seek_also(seek.address);
  if (around_.on_other_head) around_.on_other_head(seek.address);
}

void WorkerHands::carry_out(SendAs&& send) {
  if (send.envelope.to.node != kHeadNode) return host_->post().send(std::move(send.envelope));
  const Status sent = around_.link->send(send.envelope);
  if (!sent.ok()) logger().debug("not sent to the head: {}", sent.error().message);
}

void WorkerHands::carry_out(JoinedCluster&& joined) {
  if (around_.lane) around_.lane->identify(joined.id, joined.incarnation);
  around_.meter->identify(joined.id, joined.incarnation);
  member_ = Ref<NodeAgentInbox>(joined.id, joined.incarnation);
  if (around_.on_life) around_.on_life(joined.id, joined.incarnation);
  if (auto mailbox = host_->post().find(self_.address))  // none: it is being ended
    host_->post().attach(member_->address, std::move(mailbox));
}

void WorkerHands::carry_out(LeaveAddress&& leave) {
  (void)host_->post().detach(Ref<NodeAgentInbox>(leave.id, leave.incarnation).address);
  member_.reset();
  if (around_.on_life) around_.on_life({}, {});
}

void WorkerHands::carry_out(HoldMail&& hold) { host_->post().hold(hold.id, hold.incarnation); }
void WorkerHands::carry_out(EndHold&& end) {
  host_->post().end_hold(end.id, end.incarnation, end.send);
}

void WorkerHands::carry_out(WorkerExit&& exit) { around_.on_exit(exit); }

void WorkerHands::carry_out(LogLine&& line) {
  switch (line.level) {
    case LogLine::Level::kInfo:
      return logger().info("{}", line.text);
    case LogLine::Level::kWarning:
      return logger().warn("{}", line.text);
    case LogLine::Level::kError:
      return logger().error("{}", line.text);
  }
}

// --- Peers ---

void WorkerHands::check(const Peer& peer, const Status& status) {
  if (!status.ok())
    host_->post().tell(
        self_, PeerDown{peer.id, peer.incarnation, status.error().message, LinkFault::kNobody});
}

void WorkerHands::forget(const Peer& peer, bool fence) {
  if (around_.lane) around_.lane->forget(peer.id, peer.incarnation, fence);
  host_->post().drop_lane(peer.id, peer.incarnation);
  around_.meter->peer_down(peer.id, peer.incarnation, "it was let go");
}

void WorkerHands::carry_out(FencePeer&& fence) { forget(fence.peer, true); }
/// Without a fence: the same life may be a peer again in the next version. One that is not expected
/// cannot come in anyway.
void WorkerHands::carry_out(ForgetPeer&& forget_peer) { forget(forget_peer.peer, false); }

void WorkerHands::carry_out(ExpectPeer&& expect) {
  check(expect.peer, around_.lane ? around_.lane->expect(expect.peer)
                                  : unavailable("This worker has no bulk lane."));
}
void WorkerHands::carry_out(ConnectPeer&& connect) {
  check(connect.peer, around_.lane ? around_.lane->connect(connect.peer)
                                   : unavailable("This worker has no bulk lane."));
}

void WorkerHands::carry_out(AskPeer&& ask) {
  if (around_.lane) around_.lane->ask(ask.peer.id, ask.peer.incarnation);
}

void WorkerHands::carry_out(MeasurePeer&& measure) { around_.meter->begin(measure.order); }
void WorkerHands::carry_out(EndMeasuring&& end) { around_.meter->end(end.number); }

// --- Weights and devices ---

void WorkerHands::carry_out(InspectCheckpoint&& inspect) {
  around_.source->inspect(inspect.folder);
}
void WorkerHands::carry_out(ProveTensors&& prove) {
  around_.source->prove(std::move(prove.tensors));
}
void WorkerHands::carry_out(ProveCopies&&) { around_.source->prove_copies(); }
void WorkerHands::carry_out(ReadWeights&& read) { around_.source->read(std::move(read.order)); }
void WorkerHands::carry_out(BuildPart&& build) {
  around_.source->build(std::move(build.preparation));
}
void WorkerHands::carry_out(CancelReading&&) { around_.source->cancel(); }
void WorkerHands::carry_out(FreeWeights&& free) { around_.source->free(std::move(free.garbage)); }
void WorkerHands::carry_out(ProbeDevices&&) {
  for (Device* device : around_.devices) device->probe();
}
void WorkerHands::carry_out(ShowAlive&&) {
  if (around_.on_alive) around_.on_alive();
}

}  // namespace troupe
