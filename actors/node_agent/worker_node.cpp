#include "actors/node_agent/worker_node.h"

#include <unistd.h>

#include <utility>

#include "actors/node_agent/worker_impl.h"
#include "runtime/host.h"
#include "runtime/log.h"
#include "transport/codec.h"

namespace troupe {

Status WorkerNode::Impl::start(WorkerOptions options, std::unique_ptr<HeadLink> head_link) {
  for (const auto& device : options.devices) {
    devices.push_back(std::make_unique<Device>(device));
    load_threads = std::max(load_threads, device.threads);
    devices.back()->on_failed([this, failed = devices.back().get()] {
      spdlog::error("device {} has failed and computes no more: {}", failed->options().index,
                    failed->failed());
      tell([this](NodeAgent& a, auto& actions) { a.devices_changed(now(), progress(), actions); });
    });
  }
  weights = std::make_unique<WeightStore>(options.expert_tier_memory);
  if (options.fabric) {
    auto made = transport::make_libfabric(*options.fabric, *this);
    if (!made.ok()) return made.error();
    fabric = std::move(*made);
  }
  link = std::move(head_link);
  agent = std::make_unique<NodeAgent>(agent_options(options));
  handle = spawn_actor(system, [this](const ActorHandle&) {
    return make_body(
        [this](const Envelope& envelope) {
          NodeAgentActions actions;
          agent->on(envelope, now(), actions);
          carry_out(actions);
        },
        [this] { on_wake(); });
  });
  link->listen({
      .up = [this] { tell([](NodeAgent& a, auto& actions) { a.session_up(now(), actions); }); },
      .message =
          [this](Envelope envelope) {
            // What is for one of the node's other actors needs no detour through the agent.
            if (envelope.to.actor.kind == ActorKind::kReplica) return post.deliver(envelope);
            (void)handle.call([this, envelope] { on_head_message(envelope); });
          },
      .down =
          [this](std::string reason, bool foreign) {
            tell([reason = std::move(reason), foreign](NodeAgent& a, auto& actions) {
              a.session_down(reason, foreign, now(), actions);
            });
          },
  });
  tell([](NodeAgent& a, auto& actions) { a.start(now(), actions); });
  return {};
}

NodeAgentOptions WorkerNode::Impl::agent_options(const WorkerOptions& options) const {
  NodeAgentOptions out;
  out.version = options.version;
  out.host = host_name();
  out.pid = getpid();
  out.head = options.head;
  out.numerics = options.numerics;
  for (const auto& device : options.devices)
    out.devices.push_back(
        {device.kind, device.memory_total, static_cast<std::uint32_t>(device.threads)});
  out.model_path = options.model_path;
  out.tier_memory = options.expert_tier_memory;
  out.fabric_address = fabric ? fabric->address() : "none";
  out.fabric_description = fabric ? fabric->describe() : "none: a cluster of one node";
  return out;
}

WorkerNode::Impl::~Impl() {
  // No step is waited for: nobody wants its result any more.
  for (const auto& device : devices) device->interrupt();
  // The actors first: whatever the link or the fabric still has to say is then dropped.
  if (handle) handle.stop_and_wait(limits::kActorStopDeadline);
  stop_serving();
  for (const auto& actor : ending) actor.stop_and_wait(limits::kActorStopDeadline);
  if (agent && agent->id().value != 0) post.detach_node(agent->id(), agent->incarnation());
  post.drop_lane(kHeadNode, head.incarnation);
  // Its own thread may still send through `fabric`, so the pointer goes after the object.
  delete fabric.get();
  (void)fabric.release();
  link.reset();
}

void WorkerNode::Impl::on_head_message(Envelope envelope) {
  if (head.incarnation != envelope.from.incarnation) {
    head = {kHeadNode, envelope.from.incarnation, {ActorKind::kSupervisor, 0}};
    post.set_lane(kHeadNode, head.incarnation, [this](const Envelope& e) { return link->send(e); });
  }
  NodeAgentActions actions;
  agent->on(envelope, now(), actions);
  carry_out(actions);
}

void WorkerNode::Impl::on_wake() {
  NodeAgentActions actions;
  NodeProgress news = progress();
  once_a_second(news);
  agent->on_wake(now(), news, actions);
  carry_out(actions);
}

NodeProgress WorkerNode::Impl::progress() {
  NodeProgress out;
  const TimePoint at = now();
  for (const auto& device : devices) {
    out.devices_alive = device->makes_progress(at, limits::kLease / 2) && out.devices_alive;
    out.devices.push_back({device->memory_used(), device->take_utilization(at),
                           device->probe_us(), device->failed()});
  }
  if (serving) out.replicas = serving->reports();
  out.held_weight_bytes = weights->held_bytes();
  if (agent->state() != NodeAgent::State::kMember) {
    HeldWeights held = weights->held();
    out.held_shards = std::move(held.shards);
    out.held_experts = std::move(held.experts);
  }
  return out;
}

void WorkerNode::Impl::once_a_second(NodeProgress& out) {
  const TimePoint at = now();
  if (agent->state() != NodeAgent::State::kMember || at < next_second) return;
  next_second = at + std::chrono::seconds(1);
  for (const auto& device : devices) device->probe();
  if (auto counts = counter->take()) out.counts = std::move(counts->layers);
}

void WorkerNode::Impl::carry_out(NodeAgentActions& actions) {
  for (const auto& line : actions.log) spdlog::info("{}", line);
  if (actions.stop_serving) stop_serving();
  if (actions.joined) joined(*actions.joined);
  if (actions.inspect_checkpoint)
    loader.run([this, folder = *actions.inspect_checkpoint](const std::atomic<bool>&) {
      checkpoint_doubted = true;  // the head has other files than the ones we know
      const Status opened = open_checkpoint(folder);
      auto hash = std::make_shared<Result<std::string>>(
          opened.ok() ? Result<std::string>(checkpoint->hash())
                      : Result<std::string>(opened.error()));
      tell([hash](NodeAgent& a, auto& out) { a.checkpoint_inspected(*hash, now(), out); });
    });
  carry_out_peers(actions);
  const Address self{agent->id(), agent->incarnation(), {ActorKind::kNodeAgent, 0}};
  if (agent->id() != NodeId{}) member = self;
  for (auto& send : actions.sends) {
    // Who leaves is no member any more when this is carried out, but it is a member who says so.
    const bool leaves = std::holds_alternative<Leave>(*send.message);
    const Status sent = link->send({leaves ? member : self, send.to, std::move(send.message)});
    if (!sent.ok()) spdlog::debug("not sent to the head: {}", sent.error().message);
  }
  if (actions.drop && serving) serving->drop_pending(actions.load ? &*actions.load : nullptr);
  if (actions.load) begin_load(std::move(*actions.load));
  if (actions.activate) activate(*actions.activate);
  if (actions.retire) retire(*actions.retire);
  if (actions.close_session) link->close();
  if (actions.connect_head) link->connect();
  if (actions.wake) handle.wake_at(*actions.wake);
  if (actions.exit) {
    link->close();
    std::lock_guard lock(mutex);
    if (!ended) ended = Exit{actions.exit->code, actions.exit->reason};
    ended_changed.notify_all();
  }
}

void WorkerNode::Impl::carry_out_peers(const NodeAgentActions& actions) {
  const auto check = [&](const Peer& peer, const Status& status) {
    if (status.ok()) return;
    tell([peer, reason = status.error().message](NodeAgent& a, auto& out) {
      a.peer_down(peer.id, peer.incarnation, reason, now(), out);
    });
  };
  const Error none = unavailable("This worker has no bulk lane.");
  for (const auto& peer : actions.fence_peers) {
    if (fabric) fabric->forget({peer.id, peer.incarnation}, true);
    post.drop_lane(peer.id, peer.incarnation);
  }
  for (const auto& peer : actions.forget_peers) {
    // Without a fence: the same life may be a peer again in the next version. Whoever is not
    // expected cannot come in anyway.
    if (fabric) fabric->forget({peer.id, peer.incarnation}, false);
    post.drop_lane(peer.id, peer.incarnation);
  }
  for (const auto& peer : actions.expect_peers)
    check(peer, fabric ? fabric->expect({peer.id, peer.incarnation}, peer.token) : none);
  for (const auto& peer : actions.connect_peers)
    check(peer, fabric
                    ? fabric->connect({peer.id, peer.incarnation}, peer.fabric_address, peer.token)
                    : none);
  for (const auto& peer : actions.pings)
    post.send({{agent->id(), agent->incarnation(), {ActorKind::kNodeAgent, 0}},
               {peer.id, peer.incarnation, {ActorKind::kNodeAgent, 0}},
               message_of(PeerPing{})});
  if (actions.avoid) avoided = *actions.avoid;
  if (!serving) return;
  for (const auto& lost : actions.lost) serving->member_lost(lost.node, lost.incarnation);
  for (const NodeId node : actions.peers_down) serving->peer_down(node);
  for (const NodeId node : actions.peers_up) serving->peer_up(node);
  if (actions.avoid) serving->avoid(*actions.avoid);
}

void WorkerNode::Impl::joined(const NodeAgentActions::Joined& joined) {
  weights->forget_versions();
  avoided.clear();
  if (fabric) fabric->identify({joined.id, joined.incarnation});
  post.attach({joined.id, joined.incarnation, {ActorKind::kNodeAgent, 0}}, handle);
}

void WorkerNode::Impl::on_frame(PeerKey from, transport::Frame frame) {
  auto decoded = transport::decode(frame.header.bytes, frame.payload);
  if (!decoded.ok()) {
    spdlog::warn("{} sent a message that cannot be read: {}", to_string(from.node),
                 decoded.error().message);
    fabric->forget(from, false);
    return on_peer_down(from, decoded.error().message);
  }
  if (decoded->from.node != from.node || decoded->from.incarnation != from.incarnation) {
    spdlog::warn("{} sent a message in the name of {}; it is dropped", to_string(from.node),
                 to_string(decoded->from));
    return;
  }
  post.deliver(std::move(*decoded));
}

void WorkerNode::Impl::on_peer_up(PeerKey peer) {
  post.set_lane(peer.node, peer.incarnation,
                [this, peer](const Envelope& envelope) { return send_frame(peer, envelope); });
  tell([peer](NodeAgent& a, auto& actions) {
    a.peer_up(peer.node, peer.incarnation, now(), actions);
  });
}

void WorkerNode::Impl::on_peer_down(PeerKey peer, std::string reason) {
  post.drop_lane(peer.node, peer.incarnation);
  (void)handle.call([this, peer, reason = std::move(reason)] {
    NodeAgentActions actions;
    agent->peer_down(peer.node, peer.incarnation, reason, now(), actions);
    carry_out(actions);
  });
}

Status WorkerNode::Impl::send_frame(PeerKey to, const Envelope& envelope) {
  auto encoded = transport::encode(envelope);
  if (!encoded.ok()) return encoded.error();
  auto bytes = std::make_shared<const std::vector<std::byte>>(std::move(*encoded));
  transport::Frame frame;
  frame.header = {bytes, std::span(*bytes), MemoryKind::kHost};
  if (const Payload* payload = transport::payload_of(*envelope.message)) frame.payload = *payload;
  return fabric->send(to, std::move(frame));
}

WorkerNode::WorkerNode(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
WorkerNode::~WorkerNode() = default;

Result<std::unique_ptr<WorkerNode>> WorkerNode::start(caf::actor_system& system, Post& post,
                                                      WorkerOptions options,
                                                      std::unique_ptr<HeadLink> link) {
  auto impl = std::make_unique<Impl>(system, post);
  if (const Status started = impl->start(std::move(options), std::move(link)); !started.ok())
    return started.error();
  return std::unique_ptr<WorkerNode>(new WorkerNode(std::move(impl)));
}

void WorkerNode::leave(const std::string& reason) {
  impl_->tell([reason](NodeAgent& a, auto& actions) { a.leave(reason, now(), actions); });
}

std::optional<WorkerNode::Exit> WorkerNode::wait(Duration patience) {
  std::unique_lock lock(impl_->mutex);
  impl_->ended_changed.wait_for(lock, patience, [&] { return impl_->ended.has_value(); });
  return impl_->ended;
}

}  // namespace troupe
