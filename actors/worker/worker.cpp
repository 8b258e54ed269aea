#include "actors/worker/worker.h"

#include <limits>
#include <utility>

#include "runtime/log.h"

namespace troupe {
namespace {

/// No node of a cluster has that id: a worker's own address in its process.
constexpr NodeId kThisProcess{std::numeric_limits<std::uint32_t>::max()};

/// The first that no other worker of this process has.
Ref<NodeAgentInbox> free_address(const Post& post) {
  std::uint64_t number = 1;
  while (post.find(Ref<NodeAgentInbox>(kThisProcess, Incarnation{number}).address)) ++number;
  return {kThisProcess, Incarnation{number}};
}

NodeAgentOptions options_of(WorkerSetup& setup) {
  NodeAgentOptions options = std::move(setup.agent);
  options.devices.clear();
  for (const Device* device : setup.around.devices)
    options.devices.push_back({device->options().kind, device->options().memory_total,
                               static_cast<std::uint32_t>(device->options().threads),
                               device->options().name, device->options().architecture});
  if (const nccl::Node* nccl = setup.around.nccl) options.nccl = nccl->version();
  return options;
}

/// Of a worker that came to the head by that way.
BulkPlace bulk_place(const WorkerSurroundings& around, const ControlWay& way) {
  BulkPlace place;
  if (BulkLane* lane = around.lane) {
    lane->come_by(way);
    place = {lane->address(), lane->describe(), lane->port()};
  }
  if (around.nccl)
    place.description += "; rows, outputs and tensor-parallel ranks by " + around.nccl->describe() +
                         " (asked for), if all have it";
  return place;
}

WorkerSurroundings with_meter(WorkerSurroundings around, Host& host,
                              const Ref<NodeAgentInbox>& agent) {
  around.meter = std::make_shared<LinkMeter>(
      LinkMeter::Surroundings{around.lane, [&host] { return host.now(); },
                              [&post = host.post(), agent](LinkMeasured measured) {
                                post.tell(agent, LinkResult{std::move(measured)});
                              }});
  return around;
}

}  // namespace

Worker::Worker(Host& host, WorkerSetup setup)
    : host_(host),
      post_(host.post()),
      agent_(free_address(host.post())),
      around_(with_meter(setup.around, host, agent_)) {
  for (Device* device : around_.devices)
    device->on_failed([&post = post_, self = agent_, index = device->options().index] {
      post.tell(self, DeviceFailed{index});
    });
  around_.source->listen(agent_);
  if (around_.lane) around_.lane->listen(*this);
  around_.link->listen({
      .up =
          [this](const ControlWay& way) {
            post_.tell(agent_, HeadUp{bulk_place(around_, way), around_.link->tried()});
          },
      .message = [this](Envelope envelope) { on_head_message(std::move(envelope)); },
      .down =
          [&post = post_, self = agent_](std::string reason, bool foreign) {
            post.tell(self, HeadDown{std::move(reason), foreign});
          },
  });
  NodeContext context{around_.devices, setup.factory,  std::make_shared<ExpertCounter>(),
                      around_.lane,    around_.source, around_.nccl ? around_.nccl->version() : 0,
                      around_.meter};
  host_.spawn(
      agent_.address,
      [&host, self = agent_, around = around_, options = options_of(setup),
       context = std::move(context)](const Life&) {
        return std::make_unique<AgentShell>(host, self.address, WorkerMachine(options, context),
                                            WorkerHands(host, self, around));
      },
      Mail());
}

Worker::~Worker() { end(); }

void Worker::end() {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(ended_, true)) return;
    post_.drop_lane(kHeadNode, head_);
  }
  host_.end(agent_.address);
}

void Worker::leave(const std::string& reason) { post_.tell(agent_, LeaveCluster{reason}); }

/// A head of this process needs no lane.
void Worker::find_head(Incarnation head) {
  std::lock_guard lock(mutex_);
  if (ended_ || head_ == head || post_.find(Ref<SupervisorInbox>(kHeadNode, head).address)) return;
  head_ = head;
  post_.set_lane(kHeadNode, head,
                 [link = around_.link](const Envelope& e) { return link->send(e); });
}

/// A worker that is no member yet has no address that the head could know: what is not for another
/// actor is the agent's.
void Worker::on_head_message(Envelope envelope) {
  const auto mailbox = post_.find(agent_.address);
  if (!mailbox) return;  // it has ended
  // A standby's number is no life of a head's.
  if (envelope.from.actor.kind != ActorKind::kStandby) find_head(envelope.from.incarnation);
  if (envelope.to.actor.kind == ActorKind::kReplica) return post_.deliver(std::move(envelope));
  if (!mailbox->put(Mail(std::move(envelope))).ok())
    logger().error("lost a message of the head: the worker is overloaded");
}

void Worker::on_envelope(NodeId node, Incarnation incarnation, Envelope envelope) {
  if (envelope.from.node != node || envelope.from.incarnation != incarnation) {
    logger().warn("{} sent a message in the name of {}; it is dropped", to_string(node),
                  to_string(envelope.from));
    return;
  }
  if (!around_.meter->take(node, incarnation, envelope)) post_.deliver(std::move(envelope));
}

void Worker::on_peer_up(NodeId node, Incarnation incarnation) {
  post_.set_lane(node, incarnation,
                 [lane = around_.lane, node, incarnation](const Envelope& envelope) {
                   return lane->send(node, incarnation, envelope);
                 });
  post_.tell(agent_, PeerUp{node, incarnation});
}

void Worker::on_peer_down(NodeId node, Incarnation incarnation, LinkEnd end) {
  post_.drop_lane(node, incarnation);
  around_.meter->peer_down(node, incarnation, end.reason);
  post_.tell(agent_, PeerDown{node, incarnation, std::move(end.reason), end.fault});
}

}  // namespace troupe
