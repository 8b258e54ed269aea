#include "actors/head/head_node.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <future>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "actors/gateway/frontend_model.h"
#include "actors/head/checkpoint_reader.h"
#include "actors/head/client_door.h"
#include "actors/head/head.h"
#include "actors/head/open_model.h"
#include "actors/supervisor/status.h"
#include "model/checkpoint.h"
#include "model/forward/step_memory.h"
#include "model/spec/sizes.h"
#include "model/spec/split_model.h"
#include "runtime/host.h"
#include "runtime/limits.h"
#include "runtime/log.h"
#include "runtime/xxh3.h"

namespace troupe {
namespace {

std::uint64_t place_of(const std::string& folder) {
  std::error_code error;
  const std::string place = std::filesystem::canonical(folder, error).string();
  return xxh3_64(place.data(), place.size());
}

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

/// The control lane of a head, if it listens. Thread-safe.
class ServerLane final : public SessionLane {
 public:
  Status listen(caf::actor_system& system, const HostPort& address, const Credentials& credentials,
                ControlEvents& events) {
    // Sessions may come up before listen() returns: their answers wait for it.
    std::unique_lock lock(mutex_);
    auto server = ControlServer::listen(system, address, credentials, events);
    if (!server.ok()) return server.error();
    server_ = std::move(*server);
    return {};
  }
  /// No event comes after it.
  void end() {
    std::unique_ptr<ControlServer> server;
    std::unique_lock lock(mutex_);
    server.swap(server_);
    lock.unlock();
  }
  Status send(std::uint32_t session, const Envelope& envelope) override {
    std::shared_lock lock(mutex_);
    return server_ ? server_->send(session, envelope) : unavailable("The session has ended.");
  }
  void close(std::uint32_t session, const std::string& reason) override {
    std::shared_lock lock(mutex_);
    if (server_) server_->close(session, reason);
  }
  std::uint16_t port() const {
    std::shared_lock lock(mutex_);
    return server_ ? server_->port() : std::uint16_t{0};
  }
  ControlStats stats() const {
    std::shared_lock lock(mutex_);
    return server_ ? server_->stats() : ControlStats{};
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unique_ptr<ControlServer> server_;  // guarded by mutex_
};

}  // namespace

struct HeadNode::Impl final : HeadSurroundings {
  explicit Impl(CafHost& host) : host(host) {}
  ~Impl() override;

  Status start(HeadOptions options);
  SupervisorOptions supervisor_options(const HeadOptions& options, const Checkpoint& checkpoint);
  Status start_gateway(const HeadOptions& options, ClusterView& view);
  void end(const Address& actor);
  void tell_supervisor(auto message) {
    host.post().tell(head->supervisor(), std::move(message));
  }

  // HeadSurroundings
  void keep(const KeepNextNode& e) override {
    kept([&](auto& k) { k.keep_next_node(e.next_node); });
  }
  void keep(const KeepNumerics& e) override { kept([&](auto& k) { k.keep_numerics(e.numerics); }); }
  void keep(const KeepTensors& e) override { kept([&](auto& k) { k.keep_tensors(e.tensors); }); }
  void keep(const KeepCanary& e) override { kept([&](auto& k) { k.keep_canary(e.canary); }); }
  void keep(const ForgetKnown&) override { kept([](auto& k) { k.forget_known(); }); }
  void read(ReadTensors wanted) override;
  void noted(const ClusterEvent& event) override;
  void counted(const ExpertCounts& counts) override;
  void measured(const ImbalanceMeasured& imbalance) override;
  std::string status(const Supervisor& supervisor) override;
  void changed(const Supervisor& supervisor) override;
  void may_end() override;
  void update_metrics(const Supervisor& supervisor);

  CafHost& host;
  void kept(auto change) {
    if (keeper) change(*keeper);
  }
  StateKeeper* keeper = nullptr;
  std::shared_ptr<const ModelFrontend> frontend;
  std::unique_ptr<Metrics> metrics;
  ServerLane lane;
  std::unique_ptr<RequestDoor> requests;
  std::unique_ptr<Head> head;
  std::unique_ptr<ClientDoor> clients;
  std::unique_ptr<CheckpointReader> reader;
  std::unique_ptr<GatewayModel> gateway_model;
  std::unique_ptr<Gateway> gateway;

  // What the metrics know already. Inside the Supervisor's actor only.
  std::uint64_t refused_seen = 0;                     // of the lane's and the Supervisor's
  std::uint64_t garbage_seen = 0;                     // of the lane's
  std::uint64_t recoveries_seen = 0, moves_seen = 0;  // of the Supervisor's
  std::map<std::uint32_t, std::uint64_t> preemptions_seen;  // by replica
  std::map<DeviceRef, std::uint64_t> reads_seen;

  mutable std::mutex mutex;
  mutable std::condition_variable turned;
  ClusterState state = ClusterState::kForming;                       // guarded by mutex
  std::string message;                                               // guarded by mutex
  std::optional<Error> trouble;                                      // guarded by mutex
  std::size_t devices = 0;                                           // guarded by mutex
  bool ended = false;                                                // guarded by mutex
  std::vector<std::function<void(const ClusterEvent&)>> listeners;  // guarded by mutex
};

Status HeadNode::Impl::start(HeadOptions options) {
  if (!options.checkpoint) {
    auto opened = open_model(options.engine);
    if (!opened.ok()) return opened.error();
    options.checkpoint = std::move(*opened);
  }
  const Checkpoint& checkpoint = *options.checkpoint;
  auto loaded = ModelFrontend::load(options.engine);
  if (!loaded.ok()) return loaded.error();
  frontend = std::move(*loaded);
  options.engine.max_model_len = frontend->max_model_len();
  options.engine.served_model_name = frontend->served_model_name();
  const int layers = checkpoint.spec().num_layers();
  if (options.engine.pipeline_parallel_size > layers)
    return invalid_argument(
        "--pipeline-parallel-size " + std::to_string(options.engine.pipeline_parallel_size) +
        " must be from 1 to the model's number of layers, " + std::to_string(layers) + ".");
  if (options.engine.numerics) {
    const auto have = numerics_of(supported_cpu_families().back());
    if (std::find(have.begin(), have.end(), *options.engine.numerics) == have.end())
      logger().warn("this machine cannot run {} itself; its workers have to",
                   to_string(*options.engine.numerics));
  }

  keeper = options.keeper;
  reader = std::make_unique<CheckpointReader>(options.checkpoint);
  metrics = std::make_unique<Metrics>(frontend->served_model_name());
  requests = std::make_unique<RequestDoor>(
      host.post(), Ref<RouterInbox>(kHeadNode, options.incarnation),
      RequestDoor::Options{frontend, metrics.get(), random_seed});
  SupervisorOptions supervisor = supervisor_options(options, checkpoint);
  if (keeper) {
    auto known = keeper->known(supervisor.checkpoint_hash, options.engine.model);
    if (!known.ok()) return known.error();
    supervisor.known = std::move(*known);
  }
  head = std::make_unique<Head>(host, Head::Parts{std::move(supervisor),
                                                  {.tokenizer = frontend->tokenizer(),
                                                   .prefix_caching = options.engine.prefix_caching},
                                                  *this,
                                                  *requests,
                                                  lane});
  SessionHub& hub = head->hub();
  clients = std::make_unique<ClientDoor>(
      *requests, [&hub, self = head->supervisor()](std::uint32_t session, ClientGeneration m) {
        return hub.send(session,
                        {self.address, hub.address_of(session), message_of(std::move(m))});
      });
  hub.set_clients(*clients);
  if (!options.listen) return {};
  const Status listening = lane.listen(host.system(), *options.listen, options.credentials, hub);
  if (!listening.ok()) return listening;
  auto join_line = options.join_line({options.listen->host, lane.port()});
  if (!join_line.ok()) return join_line.error();
  tell_supervisor(Listening{std::move(*join_line)});
  return {};
}

SupervisorOptions HeadNode::Impl::supervisor_options(const HeadOptions& options,
                                                     const Checkpoint& checkpoint) {
  SupervisorOptions out;
  out.cluster_id = options.cluster_id;
  out.version = options.version;
  out.model_path = std::filesystem::absolute(options.engine.model).string();
  out.model_place = place_of(options.engine.model);
  out.model_name = frontend->served_model_name();
  out.checkpoint_hash = checkpoint.hash();
  out.host = host_name();
  out.pid = getpid();
  out.engine = options.engine;
  out.vocab_size = checkpoint.spec().vocab;
  out.expert_groups = checkpoint.spec().expert_groups();
  const auto ranks = std::make_shared<const std::vector<ModelSpec>>(split_into(
      checkpoint.spec(), static_cast<std::uint32_t>(options.engine.tensor_parallel_size)));
  out.costs = [ranks](Numerics n) { return model_costs(*ranks, n); };
  out.compute = [ranks, engine = options.engine](Numerics n, int threads,
                                                 std::int32_t tokens) mutable {
    engine.max_num_batched_tokens = tokens;
    return compute_costs(*ranks, step_load(engine, n, threads));
  };
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
  auto started = Gateway::start(*options.gateway, *requests, view, *gateway_model, *metrics);
  if (!started.ok()) return started.error();
  gateway = std::move(*started);
  return {};
}

/// Those who call end before those who are called: the doors, the Supervisor, the Router, whose
/// clients then hear of it, and the sessions.
HeadNode::Impl::~Impl() {
  gateway.reset();
  if (head) end(head->supervisor().address);
  if (clients) clients->close();
  if (head) end(head->router().address);
  if (requests) requests->close();
  lane.end();
  reader.reset();
}

void HeadNode::Impl::read(ReadTensors wanted) {
  reader->read(std::move(wanted), [this](TensorsRead read) { tell_supervisor(std::move(read)); });
}

void HeadNode::Impl::end(const Address& actor) {
  host.end(actor);
  if (!host.wait_ended(actor, limits::kActorStopDeadline))
    logger().error("{} does not end", to_string(actor));
}

// --- The Supervisor's surroundings --------------------------------------------------------------

void HeadNode::Impl::noted(const ClusterEvent& event) {
  logger().info("{}: {}", event.kind, event.text);
  std::unique_lock lock(mutex);
  const auto hearing = listeners;
  lock.unlock();
  for (const auto& listener : hearing) listener(event);
}

void HeadNode::Impl::counted(const ExpertCounts& counts) {
  for (const auto& layer : counts.layers)
    for (std::size_t e = 0; e < layer.tokens.size(); ++e)
      if (layer.tokens[e] > 0)
        metrics->add_expert_tokens(layer.layer, static_cast<int>(e), layer.tokens[e]);
}

void HeadNode::Impl::measured(const ImbalanceMeasured& imbalance) {
  metrics->set_expert_imbalance(imbalance.layer, imbalance.imbalance);
}

std::string HeadNode::Impl::status(const Supervisor& supervisor) {
  const RequestCounts counts = requests->counts();
  return troupe::status_json(supervisor,
                             {counts.running, counts.waiting, counts.finished, counts.failed,
                              counts.replayed, requests->rates(), requests->list()},
                             host.now());
}

void HeadNode::Impl::changed(const Supervisor& supervisor) {
  update_metrics(supervisor);
  {
    std::lock_guard lock(mutex);
    state = supervisor.state();
    message = supervisor.message();
    trouble = supervisor.trouble();
    devices = 0;
    for (const auto& [id, member] : supervisor.members()) devices += member.devices.size();
  }
  turned.notify_all();
}

void HeadNode::Impl::may_end() {
  {
    std::lock_guard lock(mutex);
    ended = true;
  }
  turned.notify_all();
}

void HeadNode::Impl::update_metrics(const Supervisor& supervisor) {
  std::uint64_t ready = 0;
  std::int64_t total = 0, used = 0;
  std::map<std::uint32_t, std::uint64_t> preemptions;
  std::map<DeviceRef, std::uint64_t> reads;
  for (const auto& [id, member] : supervisor.members()) {
    ready += member.state == MemberState::kReady;
    for (const auto& replica : member.replicas) {
      total += replica.kv_blocks_total;
      used += replica.kv_blocks_used;
      preemptions[replica.replica] = replica.preemptions;
    }
    for (std::uint32_t i = 0; i < member.devices.size(); ++i)
      reads[{id, i}] = member.devices[i].experts_read;
  }
  for (const auto& [replica, count] : preemptions)
    metrics->add_preemptions(count - std::min(count, preemptions_seen[replica]));
  preemptions_seen.swap(preemptions);
  for (const auto& [device, count] : reads)
    metrics->add_expert_reads(count - std::min(count, reads_seen[device]));
  reads_seen.swap(reads);
  const ControlStats seen = lane.stats();
  const auto& counters = supervisor.counters();
  const std::uint64_t refused = seen.strangers_refused + counters.refused_joins;
  for (; refused_seen < refused; ++refused_seen) metrics->on_refused_node();
  for (; garbage_seen < seen.garbage; ++garbage_seen) metrics->on_garbage_connection();
  for (; recoveries_seen < counters.recoveries; ++recoveries_seen) metrics->on_recovery();
  metrics->add_expert_moves(counters.moves - std::exchange(moves_seen, counters.moves));
  metrics->set_nodes(ready);
  metrics->set_kv_cache_usage(total > 0 ? static_cast<double>(used) / static_cast<double>(total)
                                        : 0.0);
}

// --- HeadNode -----------------------------------------------------------------------------------

HeadNode::HeadNode(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HeadNode::~HeadNode() = default;

Result<std::unique_ptr<HeadNode>> HeadNode::start(CafHost& host, HeadOptions options) {
  std::unique_ptr<HeadNode> head(new HeadNode(std::make_unique<Impl>(host)));
  if (const Status started = head->impl_->start(options); !started.ok()) return started.error();
  if (const Status started = head->impl_->start_gateway(options, *head); !started.ok())
    return started.error();
  return head;
}

GenerationService& HeadNode::service() { return *impl_->requests; }
const ModelFrontend& HeadNode::frontend() const { return *impl_->frontend; }
Metrics& HeadNode::metrics() { return *impl_->metrics; }
std::string HeadNode::http_url() const { return impl_->gateway ? impl_->gateway->url() : ""; }
std::unique_ptr<HeadLink> HeadNode::make_local_link() {
  return impl_->head->hub().make_local_link();
}

std::string HeadNode::status_json() const {
  auto promise = std::make_shared<std::promise<std::string>>();
  auto future = promise->get_future();
  impl_->tell_supervisor(StatusWanted{promise});
  if (future.wait_for(limits::kRouterAnswerDeadline) != std::future_status::ready) return "{}";
  return future.get();
}

bool HeadNode::ready() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->state == ClusterState::kReady;
}

std::string HeadNode::state() const {
  std::lock_guard lock(impl_->mutex);
  return std::string(to_string(impl_->state));
}

void HeadNode::subscribe(std::function<void(const ClusterEvent&)> listener) {
  std::lock_guard lock(impl_->mutex);
  impl_->listeners.push_back(std::move(listener));
}

bool HeadNode::wait_ready(Duration patience) const {
  std::unique_lock lock(impl_->mutex);
  return impl_->turned.wait_for(lock, patience, [&] {
    return impl_->state == ClusterState::kReady || impl_->ended;
  }) && impl_->state == ClusterState::kReady;
}

std::optional<Error> HeadNode::trouble() const {
  std::lock_guard lock(impl_->mutex);
  if (impl_->state != ClusterState::kDegraded) return std::nullopt;
  return impl_->trouble ? *impl_->trouble : unavailable(impl_->message);
}

std::size_t HeadNode::devices() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->devices;
}

void HeadNode::stop(const std::string& reason) {
  impl_->tell_supervisor(StopCluster{reason});
}

bool HeadNode::wait(Duration patience) {
  std::unique_lock lock(impl_->mutex);
  return impl_->turned.wait_for(lock, patience, [&] { return impl_->ended; });
}

}  // namespace troupe
