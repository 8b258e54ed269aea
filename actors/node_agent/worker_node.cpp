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

namespace {

/// What the version wants in memory. Experts that this node alone is to have come first: nobody can
/// stand in for them.
WeightPart part_of(const NodeAgentActions::Work& work) {
  std::map<ExpertKey, std::size_t> copies;
  for (const auto& layer : work.placement.experts)
    for (const auto& slot : layer.slots) ++copies[{layer.layer, slot.expert}];
  WeightPart part{work.placement.numerics, work.shards, {}, work.tier};
  for (const bool alone : {true, false})
    for (const auto& layer : work.experts) {
      LayerExperts some{layer.layer, {}};
      for (const auto& slot : layer.slots)
        if ((copies[{layer.layer, slot.expert}] == 1) == alone) some.slots.push_back(slot);
      if (!some.slots.empty()) part.experts.push_back(std::move(some));
    }
  return part;
}

}  // namespace

struct WorkerNode::Impl : transport::FabricEvents {
  Impl(caf::actor_system& system, Post& post) : system(system), post(post) {}
  ~Impl() override;

  /// A version on its way from the disk to serving.
  struct Loading {
    NodeAgentActions::Work work;
    PlacementVersion version;
    Incarnation incarnation;  ///< of the membership
    ModelConfig model;
    LoadedPart weights;
    std::optional<Serving::Preparation> preparation;
    Status status;
  };
  using LoadingPtr = std::shared_ptr<Loading>;

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
  void start_actors(const LoadingPtr& loading);
  void finish_load(const LoadingPtr& loading);
  void fail_load(const LoadingPtr& loading, const Error& error);
  bool wanted(const Loading& loading) const;
  void activate(PlacementVersion version);
  void retire(PlacementVersion version);
  void stop_serving();
  NodeProgress progress();
  void once_a_second(NodeProgress& out);

  // --- On the loader's thread ---
  Status open_checkpoint(const std::string& folder);
  Status read_weights(Loading& loading, std::optional<PlacementVersion> active,
                      const std::atomic<bool>& cancelled);
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
  std::unique_ptr<WeightStore> weights;
  const std::shared_ptr<ExpertCounter> counter = std::make_shared<ExpertCounter>();
  std::unique_ptr<HeadLink> link;
  ActorHandle handle;
  Address member;  // its own, as long as the head had it for one

  // Touched inside the NodeAgent's actor only.
  std::unique_ptr<NodeAgent> agent;
  Address head;  // learnt from its first message
  std::unique_ptr<Serving> serving;  // of this membership, once something was placed here
  std::vector<ActorHandle> ending;
  std::set<DeviceRef> avoided;
  TimePoint next_second{};

  // Touched on the loader's thread only.
  std::shared_ptr<const Checkpoint> checkpoint;
  bool checkpoint_doubted = false;  // reading from it failed

  std::mutex mutex;
  std::condition_variable ended_changed;
  std::optional<Exit> ended;  // guarded by mutex

  Loader loader;
  Loader cleaner;  // frees what is let go, which takes a while for many GiB
};

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

// --- Versions of the placement --------------------------------------------------------------------

/// Reads the weights on the loader's thread; start_actors() and finish_load() follow.
void WorkerNode::Impl::begin_load(NodeAgentActions::Work work) {
  if (!serving) {
    const Address router{kHeadNode, head.incarnation, {ActorKind::kRouter, 0}};
    serving = std::make_unique<Serving>(
        NodeContext{system, post, devices, counter},
        Serving::Self{agent->id(), agent->incarnation(), router});
    if (!avoided.empty()) serving->avoid(avoided);
  }
  auto before = std::exchange(ending, {});
  for (auto& actor : serving->take_ending()) before.push_back(std::move(actor));
  auto loading = std::make_shared<Loading>();
  loading->version = work.version;
  loading->incarnation = agent->incarnation();
  loading->work = std::move(work);
  loader.run([this, loading, before = std::move(before),
              active = agent->active()](const std::atomic<bool>& cancelled) {
    settle_devices(before, cancelled);
    loading->status = read_weights(*loading, active, cancelled);
    if (cancelled) return;
    (void)handle.call([this, loading] { start_actors(loading); });
  });
}

Status WorkerNode::Impl::read_weights(Loading& loading, std::optional<PlacementVersion> active,
                                      const std::atomic<bool>& cancelled) {
  const WeightPart part = part_of(loading.work);
  // What is in memory already needs no file.
  if (!checkpoint || weights->lacks(part)) {
    if (const Status opened = open_checkpoint(loading.work.model_path); !opened.ok())
      return opened;
    if (checkpoint->hash() != loading.work.checkpoint_hash) {
      checkpoint_doubted = true;
      return corrupt("The checkpoint at " + loading.work.model_path +
                     " has changed since this worker joined; restore its files, or restart the "
                     "cluster with the new ones.");
    }
  }
  loading.model = checkpoint->config();
  auto loaded = weights->load(
      *checkpoint, loading.version, part, active,
      {load_threads, cancelled, [&](std::uint64_t done, std::uint64_t total) {
         const LoadProgress news{loading.version, done, total};
         tell([news](NodeAgent& a, auto& actions) { a.load_progress(news, now(), actions); });
       }});
  if (!loaded.ok()) {
    checkpoint_doubted = true;
    return loaded.error();
  }
  loading.weights = std::move(*loaded);
  return {};
}

/// Says what is to be started, and has its slow part done on the loader's thread, so that leases
/// are renewed meanwhile.
void WorkerNode::Impl::start_actors(const LoadingPtr& loading) {
  if (!wanted(*loading)) return;
  if (!loading->status.ok()) return fail_load(loading, loading->status.error());
  auto planned =
      serving->plan(std::move(loading->work), loading->model, std::move(loading->weights));
  if (!planned.ok()) return fail_load(loading, planned.error());
  loading->preparation = std::move(*planned);
  loader.run([this, loading](const std::atomic<bool>& cancelled) {
    loading->status = loading->preparation->build();
    if (cancelled) return;
    (void)handle.call([this, loading] { finish_load(loading); });
  });
}

void WorkerNode::Impl::finish_load(const LoadingPtr& loading) {
  if (!wanted(*loading)) return;
  Status started = loading->status;
  if (started.ok()) started = serving->adopt(std::move(*loading->preparation));
  if (!started.ok()) return fail_load(loading, started.error());
  NodeAgentActions actions;
  agent->loaded(loading->version, now(), actions);
  carry_out(actions);
}

/// False when it was taken back, or the membership ended, meanwhile: its actors must not start, since
/// nobody would ever stop them and what they claim is for another version.
bool WorkerNode::Impl::wanted(const Loading& loading) const {
  return serving && agent->incarnation() == loading.incarnation &&
         agent->loading() == loading.version;
}

void WorkerNode::Impl::fail_load(const LoadingPtr& loading, const Error& error) {
  NodeAgentActions actions;
  agent->load_failed(loading->version, error, now(), actions);
  carry_out(actions);
}

void WorkerNode::Impl::activate(PlacementVersion version) {
  serving->activate(version, [this, version, life = agent->incarnation()] {
    tell([version, life](NodeAgent& a, auto& actions) {
      if (a.incarnation() == life) a.settled(version, now(), actions);
    });
  });
}

void WorkerNode::Impl::retire(PlacementVersion version) {
  serving->retire(version);
  cleaner.run([this, version](const std::atomic<bool>&) { weights->retire(version); });
  if (agent->loading()) return;  // its own retirement brings the tier up to date
  loader.run([this, version](const std::atomic<bool>& cancelled) {
    if (!checkpoint) return;
    const Status kept = weights->load_tier(*checkpoint, version, {load_threads, cancelled, {}});
    if (kept.ok() || cancelled) return;
    checkpoint_doubted = true;
    spdlog::warn("the second tier of experts could not be read: {}", kept.error().message);
  });
}

void WorkerNode::Impl::stop_serving() {
  if (!serving) return;
  serving->stop();
  for (auto& actor : serving->take_ending()) ending.push_back(std::move(actor));
  serving.reset();
}

Status WorkerNode::Impl::open_checkpoint(const std::string& folder) {
  if (checkpoint && !checkpoint_doubted && checkpoint->folder() == folder) return {};
  auto opened = Checkpoint::open(folder);
  if (!opened.ok()) return opened.error();
  checkpoint = std::move(*opened);
  checkpoint_doubted = false;
  return {};
}

/// Waits, within bounds, until what earlier versions held on the devices has been given back.
/// A job that runs may be a whole step; its caches are given back after it.
void WorkerNode::Impl::settle_devices(const std::vector<ActorHandle>& before,
                                      const std::atomic<bool>& cancelled) {
  if (before.empty()) return;
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
