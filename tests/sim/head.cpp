#include "tests/sim/head.h"

#include "actors/company/post.h"
#include "tests/sim/world.h"

namespace troupe::sim {

using namespace std::chrono_literals;

TimePoint Head::clock() const { return world_.loop.now() + clock_offset_; }

// --- The process --------------------------------------------------------------------------------

void Head::start() {
  if (up() || ended_) return;
  ++life_;
  clock_offset_ = world_.loop.pick_ms(0, 1'000'000);
  const Shape& shape = world_.shape();
  SupervisorOptions options;
  options.cluster_id = "cluster";
  options.checkpoint_hash = "hash";
  options.model_path = "/model";
  options.model_name = "model";
  options.host = "head";
  options.pid = 1;
  options.engine.min_devices = shape.min_devices;
  options.engine.max_model_len = 64;
  options.engine.block_size = shape.block_size;
  options.engine.max_num_seqs = shape.max_seqs;
  options.engine.max_num_batched_tokens = shape.max_batched;
  options.engine.pipeline_parallel_size = shape.pipeline;
  options.engine.data_parallel_size = shape.replicas;
  options.engine.redundant_experts = shape.redundant;
  options.costs = [](Numerics) { return costs(); };
  options.random = [this](std::span<std::byte> bytes) {
    for (auto& b : bytes) b = static_cast<std::byte>(world_.loop.draw());
  };
  options.next_node = kept_next_node_;
  // The calendar's clock steps: it may stand before what it showed in the life before.
  kept_incarnation_ = first_incarnation(
      kept_incarnation_, static_cast<std::int64_t>(world_.loop.pick(0, 1'000'000'000'000)));
  if (kept_incarnation_ <= newest_incarnation_)
    world_.broken("A head's life got an old incarnation.");
  newest_incarnation_ = kept_incarnation_;
  incarnation_ = options.incarnation = Incarnation{kept_incarnation_};
  options.started = clock();
  supervisor_ = std::make_unique<Supervisor>(std::move(options));
  router_ = std::make_unique<Router>(Router::Options{});
  with_supervisor([this](Supervisor& s, SupervisorActions& a) { s.on_wake(clock(), a); });
}

void Head::kill() {
  if (!up()) return;
  supervisor_.reset();
  router_.reset();
  supervisor_wake_.reset();
  router_wake_.reset();
  bound_.clear();
  bound_sessions_.clear();
  operations_.clear();
  world_.control.head_died();
  world_.clients.head_died();
}

// --- Turns --------------------------------------------------------------------------------------

template <class Turn>
void Head::with_supervisor(const Turn& turn) {
  if (!up()) return;
  SupervisorActions actions;
  const TimePoint begin = troupe::now();
  turn(*supervisor_, actions);
  busy_ += troupe::now() - begin;
  carry_out(actions);
}

template <class Turn>
void Head::with_router(const Turn& turn) {
  if (!up()) return;
  RouterActions actions;
  turn(*router_, actions);
  carry_out(actions);
}

void Head::arrange_wakes(const Actions& actions, std::optional<TimePoint>& wake, bool router) {
  if (!actions.wake || (wake && *wake <= *actions.wake)) return;
  wake = actions.wake;
  world_.loop.after(*actions.wake - clock(), [this, life = life_, router] {
    if (!up() || life_ != life) return;
    auto& due = router ? router_wake_ : supervisor_wake_;
    if (!due || clock() < *due) return;
    due.reset();
    if (router)
      with_router([this](Router& r, RouterActions& a) { r.on_wake(clock(), a); });
    else
      with_supervisor([this](Supervisor& s, SupervisorActions& a) { s.on_wake(clock(), a); });
  });
}

void Head::carry_out(SupervisorActions& actions) {
  if (actions.keep_next_node) kept_next_node_ = *actions.keep_next_node;
  for (const auto& bind : actions.bind_sessions) {
    if (bind.incarnation.value <= newest_incarnation_) world_.broken("An incarnation came again.");
    newest_incarnation_ = bind.incarnation.value;
    bound_[bind.node] = {bind.session, bind.incarnation};
    bound_sessions_[bind.session] = bind.node;
    world_.control.bind(bind.session, {bind.node, bind.incarnation, {ActorKind::kNodeAgent, 0}});
  }
  for (const auto& send : actions.sends) {
    if (send.to.actor.kind == ActorKind::kClient)
      to_session(send.to.actor.index, send);
    else
      (void)to_member(supervisor_->address(), send);
  }
  for (const auto& close : actions.close_sessions) {
    if (const auto it = bound_sessions_.find(close.session); it != bound_sessions_.end()) {
      const auto bound = bound_.find(it->second);
      if (bound != bound_.end() && bound->second.session == close.session) bound_.erase(bound);
      bound_sessions_.erase(it);
    }
    world_.control.close_by_head(close.session, close.reason);
  }
  arrange_wakes(actions, supervisor_wake_, false);
  tell_router(actions);
  if (!actions.stop_self) return;
  ended_ = true;
  // After what was sent has left.
  world_.loop.after(1ms, [this] { kill(); });
}

void Head::tell_router(SupervisorActions& actions) {
  if (actions.replicas_lost)
    with_router([&](Router& r, RouterActions& a) {
      r.on_replicas_lost(actions.replicas_lost->replicas, actions.replicas_lost->why, clock(), a);
    });
  if (actions.replicas_changed) {
    std::vector<ReplicaEndpoint> endpoints;
    for (const auto& route : actions.replicas_changed->replicas) {
      endpoints.push_back({route.replica, route.address, route.slow});
      const auto it = supervisor_->members().find(route.address.node);
      if (it == supervisor_->members().end() || it->second.incarnation != route.address.incarnation)
        world_.broken("A replica is routed to a node that is no member.");
    }
    with_router([&](Router& r, RouterActions& a) {
      r.on_replicas(actions.replicas_changed->version, endpoints, clock(), a);
    });
  }
  if (actions.admission)
    with_router([&](Router& r, RouterActions& a) {
      r.set_admission(actions.admission->waits, actions.admission->why, clock(), a);
    });
}

void Head::carry_out(RouterActions& actions) {
  const Address self{kHeadNode, incarnation_, {ActorKind::kRouter, 0}};
  for (const auto& send : actions.sends) {
    if (to_member(self, send)) continue;
    const Envelope lost{
        send.to, self,
        message_of(Undeliverable{send.to, static_cast<std::uint32_t>(send.message->index()),
                                 reference_of(*send.message),
                                 unavailable(to_string(send.to) + " cannot be reached.")})};
    world_.loop.after(1us, [this, life = life_, lost] {
      if (up() && life_ == life) receive(lost);
    });
  }
  arrange_wakes(actions, router_wake_, true);
  for (const auto& delivery : actions.deliveries) world_.clients.receive(delivery);
}

bool Head::to_member(const Address& from, const Actions::Send& send) {
  ++messages_sent_;
  const auto it = bound_.find(send.to.node);
  return it != bound_.end() && it->second.incarnation == send.to.incarnation &&
         world_.control.to_worker(it->second.session, {from, send.to, send.message});
}

void Head::to_session(std::uint32_t session, const Actions::Send& send) {
  if (const auto* news = std::get_if<OperationProgress>(send.message.get())) {
    if (!operations_.contains(news->query)) world_.broken("News of an operation that is over.");
    if (news->finished) operations_.erase(news->query);
    return;
  }
  ++messages_sent_;
  (void)world_.control.to_worker(session, {supervisor_->address(), send.to, send.message});
}

// --- The lane -----------------------------------------------------------------------------------

void Head::session_up(std::uint32_t session, const std::string& peer) {
  with_supervisor(
      [&](Supervisor& s, SupervisorActions& a) { s.session_up(session, peer, clock(), a); });
}

void Head::session_down(std::uint32_t session, const std::string& reason) {
  with_supervisor(
      [&](Supervisor& s, SupervisorActions& a) { s.session_down(session, reason, clock(), a); });
}

void Head::receive(const Envelope& envelope) {
  ++messages_received_;
  if (envelope.to.actor.kind == ActorKind::kRouter) {
    if (envelope.to.incarnation == incarnation_)
      with_router([&](Router& r, RouterActions& a) { r.on(envelope, clock(), a); });
    return;
  }
  with_supervisor([&](Supervisor& s, SupervisorActions& a) {
    s.on({envelope.from, s.address(), envelope.message}, clock(), a);
  });
}

// --- Programs -----------------------------------------------------------------------------------

Result<std::uint64_t> Head::submit(PreparedRequest request) {
  if (!up()) return unavailable("There is no head.");
  RouterActions actions;
  const auto id = router_->submit(std::move(request), 1, clock(), actions);
  if (id.ok()) world_.clients.accepted(*id);
  carry_out(actions);
  return id;
}

void Head::cancel(std::uint64_t request) {
  with_router([&](Router& r, RouterActions& a) { r.cancel(request, clock(), a); });
}

std::uint32_t Head::open_program() {
  const std::uint32_t session = next_program_++;
  session_up(session, "a program");
  receive({{kHeadNode, incarnation_, {ActorKind::kClient, session}},
           {},
           message_of(ClientHello{kProtocol, "simulation"})});
  return session;
}

void Head::drain(NodeId node) {
  if (!up()) return;
  const std::uint32_t session = open_program();
  const std::uint64_t query = next_query_++;
  operations_[query] = session;
  receive({{kHeadNode, incarnation_, {ActorKind::kClient, session}},
           {},
           message_of(DrainQuery{query, node})});
}

void Head::rebalance() {
  if (!up()) return;
  const std::uint32_t session = open_program();
  const std::uint64_t query = next_query_++;
  operations_[query] = session;
  receive({{kHeadNode, incarnation_, {ActorKind::kClient, session}},
           {},
           message_of(RebalanceQuery{query})});
}

void Head::stop(const std::string& reason) {
  with_supervisor([&](Supervisor& s, SupervisorActions& a) { s.stop(reason, clock(), a); });
}

}  // namespace troupe::sim
