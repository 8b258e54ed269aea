#include "actors/node_agent/worker_node.h"

#include <unistd.h>

#include <condition_variable>
#include <future>
#include <mutex>
#include <utility>

#include "actors/node_agent/loader.h"
#include "actors/node_agent/serving.h"
#include "runtime/host.h"
#include "runtime/log.h"
#include "transport/codec.h"

namespace troupe {

using transport::PeerKey;

struct WorkerNode::Impl : transport::FabricEvents {
  Impl(caf::actor_system& system, Post& post) : system(system), post(post) {}
  ~Impl() override;

  struct Loaded {
    ModelConfig model;
    LoadedPart part;
  };

  // --- Life ---
  Status start(WorkerOptions options, std::unique_ptr<HeadLink> head_link);
  NodeAgentOptions agent_options(const WorkerOptions& options) const;
  /// Has `work` done inside the NodeAgent's actor and its actions carried out.
  template <class Work>
  void tell(Work work) {
    (void)handle.call([this, work = std::move(work)]() mutable {
      NodeAgentActions actions;
      work(*agent, actions);
      carry_out(actions);
    });
  }

  // --- Inside the NodeAgent's actor ---
  void on_head_message(Envelope envelope);
  void on_wake();
  void carry_out(NodeAgentActions& actions);
  void carry_out_peers(const NodeAgentActions& actions);
  void joined(const NodeAgentActions::Joined& joined);
  void begin_load(NodeAgentActions::Work work);
  void finish_load(const std::shared_ptr<NodeAgentActions::Work>& work,
                   const std::shared_ptr<Result<Loaded>>& loaded);
  void stop_serving(std::optional<PlacementVersion> version);
  NodeProgress progress();

  // --- On the loader's thread ---
  Result<std::shared_ptr<const Checkpoint>> open_checkpoint(const std::string& folder);
  void settle_devices(const std::vector<ActorHandle>& ending, const std::atomic<bool>& cancelled);

  // --- On the fabric's thread ---
  void on_frame(PeerKey from, transport::Frame frame) override;
  void on_peer_up(PeerKey peer) override;
  void on_peer_down(PeerKey peer, std::string reason) override;
  Status send_frame(PeerKey to, const Envelope& envelope);

  caf::actor_system& system;
  Post& post;
  int load_threads = 1;
  std::vector<std::unique_ptr<Device>> devices;
  std::unique_ptr<transport::Fabric> fabric;
  WeightStore weights;
  std::unique_ptr<HeadLink> link;
  ActorHandle handle;

  // Touched inside the NodeAgent's actor only.
  std::unique_ptr<NodeAgent> agent;
  Address head;  // learnt from its first message
  std::vector<std::unique_ptr<Serving>> serving;
  std::vector<ActorHandle> ending;

  // Touched on the loader's thread only.
  std::shared_ptr<const Checkpoint> checkpoint;

  std::mutex mutex;
  std::condition_variable ended_changed;
  std::optional<Exit> ended;  // guarded by mutex

  Loader loader;
};

Status WorkerNode::Impl::start(WorkerOptions options, std::unique_ptr<HeadLink> head_link) {
  for (const auto& device : options.devices) {
    devices.push_back(std::make_unique<Device>(device));
    load_threads = std::max(load_threads, device.threads);
  }
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
  out.fabric_address = fabric ? fabric->address() : "none";
  out.fabric_description = fabric ? fabric->describe() : "none: a cluster of one node";
  return out;
}

WorkerNode::Impl::~Impl() {
  // The actors first: whatever the link or the fabric still has to say is then dropped.
  if (handle) handle.stop_and_wait(limits::kActorStopDeadline);
  stop_serving(std::nullopt);
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
  agent->on_wake(now(), progress(), actions);
  carry_out(actions);
}

NodeProgress WorkerNode::Impl::progress() {
  NodeProgress out;
  const TimePoint at = now();
  for (const auto& device : devices) {
    out.devices_alive = device->makes_progress(at, limits::kLease / 2) && out.devices_alive;
    out.devices.push_back({device->memory_used(), device->take_utilization(at), 0, {}});
  }
  for (const auto& s : serving)
    for (const auto& report : s->reports()) out.replicas.push_back(report);
  out.held_weight_bytes = weights.held_bytes();
  return out;
}

void WorkerNode::Impl::carry_out(NodeAgentActions& actions) {
  for (const auto& line : actions.log) spdlog::info("{}", line);
  if (actions.stop_serving) stop_serving(std::nullopt);
  if (actions.deactivate) stop_serving(actions.deactivate);
  if (actions.joined) joined(*actions.joined);
  if (actions.inspect_checkpoint)
    loader.run([this, folder = *actions.inspect_checkpoint](const std::atomic<bool>&) {
      auto opened = open_checkpoint(folder);
      auto hash =
          std::make_shared<Result<std::string>>(opened.ok() ? Result<std::string>((*opened)->hash())
                                                            : Result<std::string>(opened.error()));
      tell([hash](NodeAgent& a, auto& out) { a.checkpoint_inspected(*hash, now(), out); });
    });
  carry_out_peers(actions);
  const Address self{agent->id(), agent->incarnation(), {ActorKind::kNodeAgent, 0}};
  for (auto& send : actions.sends) {
    const Status sent = link->send({self, send.to, std::move(send.message)});
    if (!sent.ok()) spdlog::debug("not sent to the head: {}", sent.error().message);
  }
  if (actions.load) begin_load(std::move(*actions.load));
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
}

void WorkerNode::Impl::joined(const NodeAgentActions::Joined& joined) {
  if (fabric) fabric->identify({joined.id, joined.incarnation});
  post.attach({joined.id, joined.incarnation, {ActorKind::kNodeAgent, 0}}, handle);
}

void WorkerNode::Impl::begin_load(NodeAgentActions::Work work) {
  auto shared = std::make_shared<NodeAgentActions::Work>(std::move(work));
  loader.run([this, shared,
              before = std::exchange(ending, {})](const std::atomic<bool>& cancelled) {
    settle_devices(before, cancelled);
    auto loaded = std::make_shared<Result<Loaded>>(internal_error(""));
    if (auto opened = open_checkpoint(shared->model_path); opened.ok()) {
      const WeightPart part{shared->placement.numerics, shared->shards, shared->experts};
      auto part_loaded = weights.load(
          **opened, part, load_threads, cancelled, [&](std::uint64_t done, std::uint64_t total) {
            const LoadProgress news{shared->version, done, total};
            tell([news](NodeAgent& a, auto& actions) { a.load_progress(news, now(), actions); });
          });
      if (part_loaded.ok())
        *loaded = Loaded{(*opened)->config(), std::move(*part_loaded)};
      else
        *loaded = part_loaded.error();
    } else {
      *loaded = opened.error();
    }
    if (cancelled) return;
    (void)handle.call([this, shared, loaded] { finish_load(shared, loaded); });
  });
}

void WorkerNode::Impl::finish_load(const std::shared_ptr<NodeAgentActions::Work>& work,
                                   const std::shared_ptr<Result<Loaded>>& loaded) {
  NodeAgentActions actions;
  const PlacementVersion version = work->version;
  // Taken back, or the membership ended, while it was read: its actors must not start, since
  // nobody would ever stop them and what they claim is for the next version.
  if (agent->loading() != version) return;
  if (!loaded->ok()) {
    agent->load_failed(version, loaded->error(), now(), actions);
    return carry_out(actions);
  }
  const Address router{kHeadNode, head.incarnation, {ActorKind::kRouter, 0}};
  auto started = Serving::start({system, post, devices},
                                {std::move(*work), agent->id(), agent->incarnation(), router,
                                 loaded->value().model, std::move(loaded->value().part)});
  if (started.ok()) {
    serving.push_back(std::move(*started));
    agent->loaded(version, now(), actions);
  } else {
    agent->load_failed(version, started.error(), now(), actions);
  }
  carry_out(actions);
}

void WorkerNode::Impl::stop_serving(std::optional<PlacementVersion> version) {
  std::erase_if(serving, [&](const auto& s) {
    if (version && s->version() != *version) return false;
    for (auto& actor : s->stop()) ending.push_back(std::move(actor));
    return true;
  });
}

Result<std::shared_ptr<const Checkpoint>> WorkerNode::Impl::open_checkpoint(
    const std::string& folder) {
  if (checkpoint && checkpoint->folder() == folder) return checkpoint;
  auto opened = Checkpoint::open(folder);
  if (opened.ok()) checkpoint = *opened;
  return opened;
}

/// Waits, within bounds, until what earlier versions held on the devices has been given back.
/// A job that runs may be a whole step; its caches are given back after it.
void WorkerNode::Impl::settle_devices(const std::vector<ActorHandle>& before,
                                      const std::atomic<bool>& cancelled) {
  for (const auto& actor : before) actor.stop_and_wait(limits::kActorStopDeadline);
  const TimePoint deadline = now() + limits::kStepDeadline / 2;
  for (const auto& device : devices) {
    auto settled = std::make_shared<std::promise<void>>();
    auto future = settled->get_future();
    if (!device->submit([settled] { settled->set_value(); }).ok()) continue;
    while (!cancelled && now() < deadline)
      if (future.wait_for(std::chrono::milliseconds(20)) == std::future_status::ready) break;
  }
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
    for (const auto& s : serving) s->peer_down(peer.node);
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
