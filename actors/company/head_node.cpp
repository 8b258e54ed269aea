#include "actors/company/head_node.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <future>
#include <mutex>

#include "actors/company/client_door.h"
#include "actors/company/session_hub.h"
#include "actors/gateway/frontend_model.h"
#include "actors/router/router_actor.h"
#include "actors/supervisor/status.h"
#include "actors/supervisor/supervisor.h"
#include "model/checkpoint.h"
#include "model/kv_cache.h"
#include "model/memory_estimate.h"
#include "runtime/host.h"
#include "runtime/limits.h"
#include "runtime/log.h"

namespace troupe {
namespace {

void fill_random(std::span<std::byte> bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const auto got = getrandom(bytes.data() + done, bytes.size() - done, 0);
    if (got > 0) done += static_cast<std::size_t>(got);
  }
}

std::uint64_t random_seed() {
  std::uint64_t seed = 0;
  fill_random(std::as_writable_bytes(std::span(&seed, 1)));
  return seed;
}

ModelCosts costs_of(const ModelConfig& config, Numerics numerics) {
  ModelCosts costs;
  const std::int32_t n = config.num_layers;
  for (std::int32_t layer = 0; layer < n; ++layer)
    costs.layers.push_back(
        {layer_bytes(config, numerics, layer), config.layer_kind(layer) == LayerKind::kExperts});
  costs.num_experts = config.num_experts;
  costs.expert_bytes = expert_bytes(config, numerics);
  costs.embedding_bytes = shard_bytes(config, numerics, 0, 1) - costs.layers.front().bytes;
  // With one layer, its shard has both ends: they are counted once, as the embedding.
  if (n > 1) costs.head_bytes = shard_bytes(config, numerics, n - 1, n) - costs.layers.back().bytes;
  costs.kv_bytes_per_token_layer = kv_bytes_per_token_layer(config, numerics);
  costs.kv_bytes_per_token = sizeof(TokenId);
  return costs;
}

}  // namespace

struct HeadNode::Impl {
  Impl(caf::actor_system& system, Post& post) : system(system), post(post) {}
  ~Impl();

  Status start(HeadOptions options);
  SupervisorOptions supervisor_options(const HeadOptions& options, const Checkpoint& checkpoint);
  Status start_gateway(const HeadOptions& options, ClusterView& view);

  /// Has `work` done inside the Supervisor's actor and its actions carried out.
  template <class Work>
  void tell(Work work) {
    (void)handle.call([this, work = std::move(work)]() mutable {
      SupervisorActions actions;
      work(*supervisor, actions);
      carry_out(actions);
    });
  }
  void on_session_message(std::uint32_t session, Envelope envelope);
  void carry_out(SupervisorActions& actions);
  void update_metrics();
  RequestCounters request_counters() const;

  caf::actor_system& system;
  Post& post;
  Address self;
  std::shared_ptr<const ModelFrontend> frontend;
  std::unique_ptr<Metrics> metrics;
  std::unique_ptr<RouterActor> router;
  std::unique_ptr<ClientDoor> clients;
  ActorHandle client_actor;  // in whose turns `clients` reads requests
  std::unique_ptr<SessionHub> hub;
  ActorHandle handle;
  std::unique_ptr<GatewayModel> gateway_model;
  std::unique_ptr<Gateway> gateway;

  // Inside the Supervisor's actor only.
  std::unique_ptr<Supervisor> supervisor;
  std::map<std::uint32_t, std::pair<NodeId, Incarnation>> bound;
  std::vector<std::function<void(const ClusterEvent&)>> listeners;
  std::function<void(std::uint32_t)> keep_next_node;
  std::uint64_t refused_seen = 0, garbage_seen = 0;  // of the lane's, already in the metrics
  std::uint64_t recoveries_seen = 0, moves_seen = 0;  // of the Supervisor's

  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  ClusterState state = ClusterState::kForming;  // guarded by mutex
  std::string message;                          // guarded by mutex
  bool ended = false;                           // guarded by mutex
};

Status HeadNode::Impl::start(HeadOptions options) {
  auto checkpoint = Checkpoint::open(options.engine.model);
  if (!checkpoint.ok()) return checkpoint.error();
  auto loaded = ModelFrontend::load(options.engine);
  if (!loaded.ok()) return loaded.error();
  frontend = std::move(*loaded);
  options.engine.max_model_len = frontend->max_model_len();
  options.engine.served_model_name = frontend->served_model_name();
  const int layers = (*checkpoint)->config().num_layers;
  if (options.engine.pipeline_parallel_size > layers)
    return invalid_argument(
        "--pipeline-parallel-size " + std::to_string(options.engine.pipeline_parallel_size) +
        " must be from 1 to the model's number of layers, " + std::to_string(layers) + ".");
  if (options.engine.numerics) {
    const auto& have = supported_numerics();
    if (std::find(have.begin(), have.end(), *options.engine.numerics) == have.end())
      spdlog::warn("this machine cannot run {} itself; its workers have to",
                   to_string(*options.engine.numerics));
  }

  keep_next_node = options.keep_next_node;
  self = {kHeadNode, options.incarnation, {ActorKind::kSupervisor, 0}};
  metrics = std::make_unique<Metrics>(frontend->served_model_name());
  router = std::make_unique<RouterActor>(
      system, post,
      RouterActor::Options{{kHeadNode, options.incarnation, {ActorKind::kRouter, 0}},
                           frontend,
                           metrics.get(),
                           random_seed});
  supervisor = std::make_unique<Supervisor>(supervisor_options(options, **checkpoint));
  supervisor->set_status_source(
      [this](TimePoint at) { return troupe::status_json(*supervisor, request_counters(), at); });
  handle = spawn_actor(system, [this](const ActorHandle&) {
    return make_body(
        [this](const Envelope& envelope) {
          SupervisorActions actions;
          supervisor->on(envelope, now(), actions);
          carry_out(actions);
        },
        [this] {
          SupervisorActions actions;
          supervisor->on_wake(now(), actions);
          carry_out(actions);
        });
  });
  post.attach(self, handle);
  hub = std::make_unique<SessionHub>(
      options.incarnation,
      SessionHub::Events{
          .up =
              [this](std::uint32_t session, std::string peer) {
                tell([session, peer](Supervisor& s, auto& a) {
                  s.session_up(session, peer, now(), a);
                });
              },
          .message = [this](std::uint32_t session,
                            Envelope e) { on_session_message(session, std::move(e)); },
          .down =
              [this](std::uint32_t session, std::string reason) {
                clients->session_down(session);
                tell([session, reason](Supervisor& s, auto& a) {
                  s.session_down(session, reason, now(), a);
                });
              },
      });
  clients =
      std::make_unique<ClientDoor>(*router, [this](std::uint32_t session, ClientGeneration m) {
        return hub->send(session, {self, hub->address_of(session), message_of(std::move(m))});
      });
  client_actor = spawn_actor(
      system, [](const ActorHandle&) { return make_body([](const Envelope&) {}, [] {}); });
  if (options.listen) {
    const Status listening = hub->listen(system, *options.listen, options.credentials);
    if (!listening.ok()) return listening;
    tell([line = options.join_line({options.listen->host, hub->port()})](Supervisor& s, auto&) {
      s.set_join_line(line);
    });
  }
  // The first look at the clock arranges all later ones.
  tell([](Supervisor& s, auto& a) { s.on_wake(now(), a); });
  return {};
}

SupervisorOptions HeadNode::Impl::supervisor_options(const HeadOptions& options,
                                                     const Checkpoint& checkpoint) {
  SupervisorOptions out;
  out.cluster_id = options.cluster_id;
  out.version = options.version;
  out.model_path = std::filesystem::absolute(options.engine.model).string();
  out.model_name = frontend->served_model_name();
  out.checkpoint_hash = checkpoint.hash();
  out.host = host_name();
  out.pid = getpid();
  out.engine = options.engine;
  out.expert_groups = std::max(1, checkpoint.config().num_expert_groups);
  out.costs = [config = checkpoint.config()](Numerics n) { return costs_of(config, n); };
  out.random = fill_random;
  out.incarnation = options.incarnation;
  out.next_node = options.next_node;
  out.started = now();
  out.started_unix_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                            std::chrono::system_clock::now().time_since_epoch())
                            .count();
  return out;
}

Status HeadNode::Impl::start_gateway(const HeadOptions& options, ClusterView& view) {
  if (!options.gateway) return {};
  gateway_model = make_gateway_model(frontend);
  auto started = Gateway::start(*options.gateway, *router, view, *gateway_model, *metrics);
  if (!started.ok()) return started.error();
  gateway = std::move(*started);
  return {};
}

/// Those who call end before those who are called: the doors, the Supervisor, the Router (which
/// tells the clients that are left), then the sessions.
HeadNode::Impl::~Impl() {
  gateway.reset();
  if (handle) {
    post.detach(self);
    handle.stop_and_wait(limits::kActorStopDeadline);
  }
  client_actor.stop_and_wait(limits::kActorStopDeadline);
  if (clients) clients->close();
  router.reset();
  for (const auto& [session, member] : bound) post.drop_lane(member.first, member.second);
  if (hub) hub->end();
}

void HeadNode::Impl::on_session_message(std::uint32_t session, Envelope envelope) {
  if (ClientDoor::takes(*envelope.message)) {
    // Reading a long prompt takes time, which the lane's thread does not have: leases hang on it.
    const Status queued =
        client_actor.call([this, session, envelope] { clients->on(session, *envelope.message); });
    if (!queued.ok()) spdlog::warn("a client's request was dropped: {}", queued.error().message);
    return;
  }
  if (envelope.to.actor.kind == ActorKind::kRouter) return post.deliver(std::move(envelope));
  tell([envelope = std::move(envelope)](Supervisor& s, auto& a) { s.on(envelope, now(), a); });
}

void HeadNode::Impl::carry_out(SupervisorActions& actions) {
  if (actions.keep_next_node) keep_next_node(*actions.keep_next_node);
  for (const auto& bind : actions.bind_sessions) {
    hub->bind(bind.session, bind.node, bind.incarnation);
    bound[bind.session] = {bind.node, bind.incarnation};
    post.set_lane(bind.node, bind.incarnation, [this, session = bind.session](const Envelope& e) {
      return hub->send(session, e);
    });
  }
  for (auto& send : actions.sends) {
    if (send.to.actor.kind == ActorKind::kClient)
      (void)hub->send(send.to.actor.index, {self, send.to, std::move(send.message)});
    else
      post.send(self, std::move(send));
  }
  for (const auto& close : actions.close_sessions) {
    if (const auto it = bound.find(close.session); it != bound.end()) {
      post.drop_lane(it->second.first, it->second.second);
      bound.erase(it);
    }
    hub->close(close.session);
  }
  if (actions.replicas_lost)
    router->on_replicas_lost(std::move(actions.replicas_lost->replicas),
                             std::move(actions.replicas_lost->why));
  if (actions.replicas_changed) {
    std::vector<ReplicaEndpoint> endpoints;
    for (const auto& route : actions.replicas_changed->replicas)
      endpoints.push_back({route.replica, route.address, route.slow});
    router->on_replicas(actions.replicas_changed->version, std::move(endpoints));
  }
  if (actions.admission)
    router->set_admission(actions.admission->waits, std::move(actions.admission->why));
  if (actions.requests_end) router->stop(std::move(*actions.requests_end));
  for (const auto& event : actions.events) {
    spdlog::info("{}: {}", event.kind, event.text);
    for (const auto& listener : listeners) listener(event);
  }
  if (actions.counted)
    for (const auto& layer : actions.counted->layers)
      for (std::size_t e = 0; e < layer.tokens.size(); ++e)
        if (layer.tokens[e] > 0)
          metrics->add_expert_tokens(layer.layer, static_cast<int>(e), layer.tokens[e]);
  for (const auto& [layer, imbalance] : actions.imbalances)
    metrics->set_expert_imbalance(layer, imbalance);
  update_metrics();
  {
    std::lock_guard lock(mutex);
    state = supervisor->state();
    message = supervisor->message();
    ended = ended || actions.stop_self;
  }
  changed.notify_all();
  if (actions.wake) handle.wake_at(*actions.wake);
}

void HeadNode::Impl::update_metrics() {
  std::uint64_t ready = 0;
  std::int64_t total = 0, used = 0;
  for (const auto& [id, member] : supervisor->members()) {
    ready += member.state == MemberState::kReady;
    for (const auto& replica : member.replicas) {
      total += replica.kv_blocks_total;
      used += replica.kv_blocks_used;
    }
  }
  const ControlStats lane = hub->stats();
  for (; refused_seen < lane.strangers_refused; ++refused_seen) metrics->on_refused_node();
  for (; garbage_seen < lane.garbage; ++garbage_seen) metrics->on_garbage_connection();
  const auto& counters = supervisor->counters();
  for (; recoveries_seen < counters.recoveries; ++recoveries_seen) metrics->on_recovery();
  metrics->add_expert_moves(counters.moves - std::exchange(moves_seen, counters.moves));
  metrics->set_nodes(ready);
  metrics->set_kv_cache_usage(total > 0 ? static_cast<double>(used) / static_cast<double>(total)
                                        : 0.0);
}

RequestCounters HeadNode::Impl::request_counters() const {
  const RequestCounts counts = router->counts();
  return {counts.running,  counts.waiting,  counts.finished, counts.failed,
          counts.replayed, router->rates(), router->list()};
}

HeadNode::HeadNode(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HeadNode::~HeadNode() = default;

Result<std::unique_ptr<HeadNode>> HeadNode::start(caf::actor_system& system, Post& post,
                                                  HeadOptions options) {
  std::unique_ptr<HeadNode> head(new HeadNode(std::make_unique<Impl>(system, post)));
  if (const Status started = head->impl_->start(options); !started.ok()) return started.error();
  if (const Status started = head->impl_->start_gateway(options, *head); !started.ok())
    return started.error();
  return head;
}

GenerationService& HeadNode::service() { return *impl_->router; }
const ModelFrontend& HeadNode::frontend() const { return *impl_->frontend; }
Metrics& HeadNode::metrics() { return *impl_->metrics; }
std::uint16_t HeadNode::control_port() const { return impl_->hub->port(); }
std::string HeadNode::http_url() const { return impl_->gateway ? impl_->gateway->url() : ""; }
std::unique_ptr<HeadLink> HeadNode::make_local_link() { return impl_->hub->make_local_link(); }

std::string HeadNode::status_json() const {
  auto promise = std::make_shared<std::promise<std::string>>();
  auto future = promise->get_future();
  (void)impl_->handle.call([impl = impl_.get(), promise] {
    promise->set_value(troupe::status_json(*impl->supervisor, impl->request_counters(), now()));
  });
  if (future.wait_for(limits::kRouterAnswerDeadline) != std::future_status::ready) return "{}";
  return future.get();
}

bool HeadNode::ready() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->state == ClusterState::kReady;
}

std::string HeadNode::not_ready_reason() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->message;
}

void HeadNode::subscribe(std::function<void(const ClusterEvent&)> listener) {
  (void)impl_->handle.call([impl = impl_.get(), listener = std::move(listener)] {
    impl->listeners.push_back(listener);
  });
}

bool HeadNode::wait_ready(Duration patience) const {
  std::unique_lock lock(impl_->mutex);
  return impl_->changed.wait_for(lock, patience, [&] {
    return impl_->state == ClusterState::kReady || impl_->ended;
  }) && impl_->state == ClusterState::kReady;
}

std::optional<Error> HeadNode::trouble() const {
  std::lock_guard lock(impl_->mutex);
  if (impl_->state != ClusterState::kDegraded) return std::nullopt;
  return unavailable(impl_->message);
}

void HeadNode::stop(const std::string& reason) {
  impl_->tell([reason](Supervisor& s, auto& a) { s.stop(reason, now(), a); });
}

bool HeadNode::wait(Duration patience) {
  std::unique_lock lock(impl_->mutex);
  return impl_->changed.wait_for(lock, patience, [&] { return impl_->ended; });
}

}  // namespace troupe
