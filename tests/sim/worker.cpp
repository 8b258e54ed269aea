#include "tests/sim/worker.h"

#include "actors/company/post.h"
#include "tests/sim/world.h"

namespace troupe::sim {

using namespace std::chrono_literals;

namespace {

/// What a slow device's work takes, in what it usually does.
constexpr int kSlowness = 8;
constexpr Duration kMailboxDelay = std::chrono::microseconds(1);

}  // namespace

Worker::Worker(World& world, int index) : world_(world), index_(index), disk_(*this) {}

TimePoint Worker::clock() const { return world_.loop.now() + clock_offset_; }

// --- The process --------------------------------------------------------------------------------

void Worker::start() {
  if (alive_) return;
  ++life_;
  alive_ = true;
  hung_ = stuck_ = slow_ = false;
  inbox_.clear();
  session_.reset();
  wake_.reset();
  exit_.reset();
  next_second_ = {};
  clock_offset_ = world_.loop.pick_ms(0, 1'000'000);
  const Shape& shape = world_.shape();
  NodeAgentOptions options;
  options.host = "host-" + std::to_string(index_);
  options.pid = 1000 * (index_ + 1) + life_;
  options.head = "head:6379";
  options.numerics = {Numerics::kReference, Numerics::kAvx2};
  options.tier_memory = shape.tier_memory;
  options.fabric_address = "bulk-" + std::to_string(index_);
  devices_.assign(static_cast<std::size_t>(shape.devices), {shape.device_memory, {}, {}, {}, {}});
  for (const Device& device : devices_) options.devices.push_back({"cpu", device.memory, 1});
  if (world_.loop.chance(50)) {  // it had a disk
    options.held_id = held_id_;
    options.held_cluster = held_cluster_;
  }
  agent_ = std::make_unique<NodeAgent>(std::move(options));
  with_agent([this](NodeAgent& agent, NodeAgentActions& a) { agent.start(clock(), a); });
}

void Worker::kill() {
  if (!alive_) return;
  alive_ = false;
  if (actors_) actors_->stop();
  actors_.reset();
  mailboxes_.clear();
  peers_.clear();
  sought_.clear();
  disk_.clear();
  world_.bulk.worker_died(index_);
  world_.control.worker_died(index_);
}

void Worker::hang() {
  if (alive_) hung_ = true;
}

void Worker::go_on() {
  if (!hung_) return;
  hung_ = false;
  std::vector<Task> inbox = std::exchange(inbox_, {});
  for (Task& task : inbox) run(life_, std::move(task));
}

void Worker::run(int life, Task task) {
  if (!alive_ || life_ != life) return;
  if (hung_)
    inbox_.push_back(std::move(task));
  else
    task();
}

void Worker::later(Duration delay, Task task) {
  world_.loop.after(delay, [this, life = life_, task = std::move(task)] { run(life, task); });
}

void Worker::leave(const std::string& reason) {
  if (!alive_) return;
  with_agent([&](NodeAgent& agent, NodeAgentActions& a) { agent.leave(reason, clock(), a); });
}

// --- The devices --------------------------------------------------------------------------------

void Worker::compute(std::uint32_t number, Duration work, Task job) {
  Device& device = devices_[number];
  device.free_at = std::max(device.free_at, world_.loop.now()) + work * (slow_ ? kSlowness : 1);
  later(device.free_at - world_.loop.now(), [this, number, job = std::move(job)] {
    if (stuck_)
      devices_[number].waiting.push_back(job);
    else
      job();
  });
}

void Worker::set_stuck(bool stuck) {
  stuck_ = stuck;
  if (stuck) return;
  for (Device& device : devices_)
    for (Task& job : std::exchange(device.waiting, {})) run(life_, std::move(job));
}

void Worker::fail_device(std::uint32_t number) {
  if (!alive_ || !devices_[number].failed.empty()) return;
  devices_[number].failed = "a kernel threw";
  run(life_, [this] {
    const NodeProgress now = progress();
    with_agent(
        [&](NodeAgent& agent, NodeAgentActions& a) { agent.devices_changed(clock(), now, a); });
  });
}

// --- The agent ----------------------------------------------------------------------------------

void Worker::with_agent(const Turn& turn) {
  if (!alive_) return;
  NodeAgentActions actions;
  turn(*agent_, actions);
  carry_out(actions);
}

NodeProgress Worker::progress() {
  NodeProgress out;
  out.devices_alive = !stuck_;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    const std::uint64_t used = actors_ ? actors_->claimed(static_cast<std::uint32_t>(i)) : 0;
    const auto probe = static_cast<std::uint32_t>(world_.loop.pick(95, 120));
    out.devices.push_back({used, 0.5f, probe * (slow_ ? kSlowness : 1), devices_[i].failed});
  }
  if (actors_) out.replicas = actors_->reports();
  out.held_shards = disk_.held_shards();
  out.held_experts = disk_.held_experts();
  if (agent_->state() == NodeAgent::State::kMember && clock() >= next_second_) {
    next_second_ = clock() + 1s;
    if (actors_ && actors_->serves()) out.counts = take_counts();
  }
  return out;
}

/// The rows that the gates counted are few; what matters to the plan is how they spread.
std::vector<ExpertCounts::Layer> Worker::take_counts() {
  std::vector<ExpertCounts::Layer> layers;
  for (std::int32_t layer = 0; layer < kLayers; ++layer) {
    if (!has_experts(layer)) continue;
    ExpertCounts::Layer counts{layer, std::vector<std::uint32_t>(kExperts, 100)};
    if (world_.hot_experts > 0) counts.tokens[0] = counts.tokens[1] = 5000;
    layers.push_back(std::move(counts));
  }
  return layers;
}

void Worker::wake() {
  if (!wake_ || clock() < *wake_) return;
  wake_.reset();
  const NodeProgress now = progress();
  with_agent([&](NodeAgent& agent, NodeAgentActions& a) { agent.on_wake(clock(), now, a); });
}

void Worker::carry_out(NodeAgentActions& actions) {
  if (actions.stop_serving) {
    disk_.cancel();
    if (actors_) actors_->stop();
    actors_.reset();
  }
  if (actions.joined) {
    held_id_ = actions.joined->id;
    held_cluster_ = actions.joined->cluster_id;
    avoided_.clear();
  }
  if (actions.inspect_checkpoint)
    later(world_.loop.pick_ms(0, 20), [this] {
      with_agent([this](NodeAgent& agent, NodeAgentActions& a) {
        agent.checkpoint_inspected(std::string("hash"), clock(), a);
      });
    });
  carry_out_peers(actions);
  const Address self{agent_->id(), agent_->incarnation(), {ActorKind::kNodeAgent, 0}};
  for (const auto& send : actions.sends)
    if (session_) (void)world_.control.to_head(*session_, {self, send.to, send.message});
  if (actions.drop && actors_) actors_->drop_pending(actions.load ? &*actions.load : nullptr);
  if (actions.load) begin_load(*actions.load);
  if (actions.activate) {
    const PlacementVersion version = *actions.activate;
    actors_->activate(version, [this, version, life = agent_->incarnation()] {
      with_agent([&](NodeAgent& agent, NodeAgentActions& a) {
        if (agent.incarnation() == life) agent.settled(version, clock(), a);
      });
    });
  }
  if (actions.retire && actors_) {
    actors_->retire(*actions.retire);
    disk_.retire(actors_->works());
  }
  carry_out_session(actions);
}

void Worker::carry_out_session(const NodeAgentActions& actions) {
  if (actions.close_session && session_) {
    world_.control.close_by_worker(*session_);
    session_.reset();
  }
  if (actions.connect_head) {
    if (session_) world_.control.close_by_worker(*session_);
    session_ = world_.control.dial(index_);
  }
  if (actions.wake && (!wake_ || *actions.wake < *wake_)) {
    wake_ = actions.wake;
    later(*actions.wake - clock(), [this] { wake(); });
  }
  if (actions.exit) {
    const Exit exit = *actions.exit;
    kill();
    exit_ = exit;
    world_.exited(index_, exit);
  }
}

void Worker::carry_out_peers(const NodeAgentActions& actions) {
  const auto drop = [this](const Peer& peer) {
    const auto it = peers_.find(peer.id);
    if (it != peers_.end() && it->second.incarnation == peer.incarnation) peers_.erase(it);
    sought_.erase(peer.token);
    world_.bulk.close(index_, peer.token);
  };
  for (const auto& peer : actions.fence_peers) drop(peer);
  for (const auto& peer : actions.forget_peers) drop(peer);
  const auto seek = [this](const Peer& peer, Duration deadline) {
    sought_.insert(peer.token);
    world_.bulk.open(index_, peer, deadline);
  };
  for (const auto& peer : actions.expect_peers) seek(peer, limits::kBulkExpectDeadline);
  for (const auto& peer : actions.connect_peers) seek(peer, limits::kBulkConnectDeadline);
  for (const auto& peer : actions.pings)
    send({{agent_->id(), agent_->incarnation(), {ActorKind::kNodeAgent, 0}},
          {peer.id, peer.incarnation, {ActorKind::kNodeAgent, 0}},
          message_of(PeerPing{})});
  if (actions.avoid) avoided_ = *actions.avoid;
  if (!actors_) return;
  for (const auto& lost : actions.lost) actors_->member_lost(lost.node, lost.incarnation);
  for (const NodeId node : actions.peers_down) actors_->peer_down(node);
  for (const NodeId node : actions.peers_up) actors_->peer_up(node);
  if (actions.avoid) actors_->avoid(*actions.avoid);
}

void Worker::begin_load(const NodeAgentActions::Work& work) {
  if (!actors_) {
    actors_ = std::make_shared<NodeActors>(
        *this,
        NodeActors::Self{
            agent_->id(), agent_->incarnation(), {kHeadNode, head_, {ActorKind::kRouter, 0}}});
    actors_->avoid(avoided_);
  }
  actors_->expect(work);
  disk_.load(work, actors_->works(), [this, work, life = agent_->incarnation()](Status read) {
    // Caches and tables are made on the loader's thread.
    later(world_.loop.pick_us(50, 3000), [this, work, life, read] {
      if (agent_->incarnation() == life) finish_load(work, read);
    });
  });
}

void Worker::finish_load(const NodeAgentActions::Work& work, const Status& read) {
  if (!actors_ || agent_->loading() != work.version) return;
  const Status adopted = read.ok() ? actors_->adopt(work) : read;
  with_agent([&](NodeAgent& agent, NodeAgentActions& a) {
    if (adopted.ok())
      agent.loaded(work.version, clock(), a);
    else
      agent.load_failed(work.version, adopted.error(), clock(), a);
  });
}

// --- The lanes ----------------------------------------------------------------------------------

void Worker::head_says(std::uint32_t session, const Envelope& envelope, bool first) {
  if (session_ != session) return;
  head_ = envelope.from.incarnation;
  if (first)
    with_agent([this](NodeAgent& agent, NodeAgentActions& a) { agent.session_up(clock(), a); });
  if (session_ != session) return;
  if (envelope.to.actor.kind == ActorKind::kReplica) return deliver(envelope);
  with_agent([&](NodeAgent& agent, NodeAgentActions& a) { agent.on(envelope, clock(), a); });
}

void Worker::session_down(std::uint32_t session, const std::string& reason) {
  if (session_ != session) return;
  session_.reset();
  with_agent([&](NodeAgent& agent, NodeAgentActions& a) {
    agent.session_down(reason, false, clock(), a);
  });
}

void Worker::peer_up(const Peer& peer) {
  if (!sought_.contains(peer.token)) return;
  peers_[peer.id] = {peer.incarnation, peer.token};
  with_agent([&](NodeAgent& agent, NodeAgentActions& a) {
    agent.peer_up(peer.id, peer.incarnation, clock(), a);
  });
}

void Worker::peer_down(const Peer& peer, const std::string& reason) {
  if (sought_.erase(peer.token) == 0) return;
  const auto it = peers_.find(peer.id);
  if (it != peers_.end() && it->second.token == peer.token) peers_.erase(it);
  with_agent([&](NodeAgent& agent, NodeAgentActions& a) {
    agent.peer_down(peer.id, peer.incarnation, reason, clock(), a);
  });
}

void Worker::peer_says(const Peer& peer, const Envelope& envelope) {
  if (envelope.from.node != peer.id || envelope.from.incarnation != peer.incarnation) return;
  if (envelope.to.actor.kind != ActorKind::kNodeAgent) return deliver(envelope);
  with_agent([&](NodeAgent& agent, NodeAgentActions& a) { agent.on(envelope, clock(), a); });
}

bool Worker::deliver_here(const Envelope& envelope) {
  if (!mailboxes_.contains(envelope.to)) return false;
  later(kMailboxDelay, [this, envelope] {
    const auto it = mailboxes_.find(envelope.to);
    if (it == mailboxes_.end()) return;  // it has ended meanwhile
    const auto actor = it->second;
    actor(envelope);
  });
  return true;
}

bool Worker::route(const Envelope& envelope) {
  if (deliver_here(envelope)) return true;
  if (envelope.to.node == kHeadNode)
    return session_ && envelope.to.incarnation == head_ &&
           world_.control.to_head(*session_, envelope);
  const auto it = peers_.find(envelope.to.node);
  return it != peers_.end() && it->second.incarnation == envelope.to.incarnation &&
         world_.bulk.send(index_, it->second.token, envelope);
}

void Worker::send(const Envelope& envelope) {
  if (route(envelope) || std::holds_alternative<Undeliverable>(*envelope.message)) return;
  route(
      {envelope.to, envelope.from,
       message_of(Undeliverable{envelope.to, static_cast<std::uint32_t>(envelope.message->index()),
                                reference_of(*envelope.message),
                                unavailable(to_string(envelope.to) + " cannot be reached.")})});
}

void Worker::deliver(const Envelope& envelope) {
  if (deliver_here(envelope) || std::holds_alternative<Undeliverable>(*envelope.message)) return;
  route(
      {envelope.to, envelope.from,
       message_of(Undeliverable{envelope.to, static_cast<std::uint32_t>(envelope.message->index()),
                                reference_of(*envelope.message),
                                unavailable(to_string(envelope.to) + " does not live here.")})});
}

std::string Worker::describe() const {
  std::string text = "  worker " + std::to_string(index_) + ": ";
  if (!alive_) return text + "dead" + (exit_ ? ": " + exit_->reason : std::string()) + "\n";
  text += to_string(agent_->id()) + "#" + std::to_string(agent_->incarnation().value) + " state " +
          std::to_string(static_cast<int>(agent_->state()));
  if (agent_->active()) text += " serves " + std::to_string(agent_->active()->value);
  if (agent_->loading()) text += " loads " + std::to_string(agent_->loading()->value);
  text += std::string(hung_ ? " hung" : "") + (stuck_ ? " stuck" : "") + (slow_ ? " slow" : "");
  return text + (actors_ ? actors_->describe() : std::string()) + "\n";
}

}  // namespace troupe::sim
