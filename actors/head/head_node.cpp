#include "actors/head/head_node.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <future>
#include <map>
#include <mutex>

#include "actors/control/server_lane.h"
#include "actors/gateway/frontend_model.h"
#include "actors/head/checkpoint_reader.h"
#include "actors/head/client_door.h"
#include "actors/head/cluster_metrics.h"
#include "actors/head/head.h"
#include "actors/head/journal_writer.h"
#include "actors/head/keeper_thread.h"
#include "actors/head/open_journal.h"
#include "actors/head/open_model.h"
#include "actors/head/standby_copy.h"
#include "actors/supervisor/status.h"
#include "model/chat/reasoning_name.h"
#include "model/checkpoint.h"
#include "model/forward/step_memory.h"
#include "model/spec/sizes.h"
#include "model/spec/split_model.h"
#include "model/step_travel.h"
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

}  // namespace

struct HeadNode::Impl final : HeadSurroundings, JournalStore {
  explicit Impl(CafHost& host) : host(host) {}
  ~Impl() override;

  Status start(HeadOptions options);
  Status read_journal(HeadOptions& options, KnownState& known, Router::Options& router);
  SupervisorOptions supervisor_options(const HeadOptions& options, const Checkpoint& checkpoint);
  Status start_gateway(const HeadOptions& options, ClusterView& view);
  void end(const Address& actor);
  void tell_supervisor(auto message) {
    host.post().tell(supervisor, std::move(message));
  }

  // JournalStore
  void keep(KeepRecords records) override {
    if (records.copy_to != 0) copies.copy(records);
    journal->keep(std::move(records));
  }
  void note(const JournalNote& note) override {
    logger().warn("{}", note.text);
    tell_supervisor(NoteEvent{"journal", note.text});
  }

  // HeadSurroundings
  void keep(const KeepNextNode& e) override {
    keep_so([e](auto& k, auto&) { k.keep_next_node(e.next_node); });
  }
  void keep(const KeepNumerics& e) override {
    keep_so([e](auto& k, auto&) { k.keep_numerics(e.numerics); });
    if (journal) journal->learn_numerics(std::string(to_string(e.numerics)));
  }
  void keep(const KeepTensors& e) override {
    if (keeping) keeping->run_spare([e](auto& k, auto&) { k.keep_tensors(e.tensors); });
  }
  void keep(const KeepCanary& e) override {
    if (keeping) keeping->run_spare([e](auto& k, auto&) { k.keep_canary(e.canary); });
  }
  void keep(const ForgetKnown&) override {
    keep_so([](auto& k, auto&) { k.forget_known(); });
  }
  void keep(const KeepStandby& e) override {
    if (!keeping && e.session != 0) tell_supervisor(StandbyKept{e.session, std::nullopt});
    keep_so([this, e](StateKeeper& k, const KeeperThread::Say& tell) {
      const Status kept = k.keep_standby(e.address);
      if (e.session == 0) return;
      tell([&] {
        tell_supervisor(
            StandbyKept{e.session, kept.ok() ? std::nullopt : std::optional<Error>(kept.error())});
      });
    });
  }
  void copy(const CopyKnown& e) override {
    // At once: the Router hears next that it follows, and a disk may be late.
    if (e.session != 0) copies.speak(e.protocol);
    keep_so([this, session = e.session](StateKeeper& k, const KeeperThread::Say& tell) {
      copies.copy_known(session, k, tell);
    });
  }
  void ask(const AskStandby& e) override {
    if (ask_standby) ask_standby(e, [this](StandbyAnswered a) { tell_supervisor(std::move(a)); });
  }
  void read(ReadTensors wanted) override;
  void noted(const ClusterEvent& event) override;
  void counted(const ExpertCounts& counts) override;
  void measured(const ImbalanceMeasured& imbalance) override;
  void measured(const LoadsMeasured& loads) override;
  std::string status(const Supervisor& supervisor) override;
  void changed(const Supervisor& supervisor) override;
  void may_end(const HeadMayEnd& end) override;

  CafHost& host;
  Ref<SupervisorInbox> supervisor;
  void keep_so(KeeperThread::Task change) {
    if (keeping) keeping->run(std::move(change));
  }
  std::unique_ptr<KeeperThread> keeping;  // null: nothing is kept
  HeadOptions::Ask ask_standby;
  std::shared_ptr<const ModelFrontend> frontend;
  std::unique_ptr<Metrics> metrics;
  bool expert_metrics = false;  // a series for each expert
  ServerLane lane;
  std::unique_ptr<RequestDoor> requests;
  std::unique_ptr<JournalWriter> journal;
  std::vector<std::string> restored;  // what goes on from earlier lives, for people
  StandbyCopy copies;
  std::unique_ptr<Head> head;
  std::unique_ptr<ClientDoor> clients;
  std::unique_ptr<CheckpointReader> reader;
  std::unique_ptr<GatewayModel> gateway_model;
  std::unique_ptr<Gateway> gateway;

  // What the metrics know already. Inside the Supervisor's actor only.
  ClusterMetrics seen;

  mutable std::mutex mutex;
  mutable std::condition_variable turned;
  ClusterState state = ClusterState::kForming;                       // guarded by mutex
  std::string message;                                               // guarded by mutex
  std::optional<Error> trouble;                                      // guarded by mutex
  std::size_t devices = 0;                                           // guarded by mutex
  bool ended = false;                                                // guarded by mutex
  std::string standby;  // guarded by mutex; that has taken this head's place
  std::vector<std::function<void(const ClusterEvent&)>> listeners;  // guarded by mutex
};

Status HeadNode::Impl::start(HeadOptions options) {
  if (!options.checkpoint) {
    auto opened = open_model(options.engine);
    if (!opened.ok()) return opened.error();
    options.checkpoint = std::move(*opened);
  }
  const Checkpoint& checkpoint = *options.checkpoint;
  if (!options.frontend) {
    auto loaded = ModelFrontend::load(options.engine);
    if (!loaded.ok()) return loaded.error();
    options.frontend = std::move(*loaded);
  }
  frontend = options.frontend;
  options.engine = resolved(options.engine, *frontend);
  for (const std::string& advice : frontend->left_out()) logger().warn("{}", advice);
  if (const std::string names = left_out_text(checkpoint); !names.empty())
    logger().info("{}", names);
  if (!checkpoint.has_tensors())
    logger().info("{} holds no weights: this head confirms nothing of what workers read",
                  checkpoint.folder());
  logger().info("{}", describe(frontend->ends(), frontend->tokenizer().get()));
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

  this->supervisor = Ref<SupervisorInbox>(kHeadNode, options.incarnation);
  if (options.keeper) keeping = std::make_unique<KeeperThread>(options.keeper);
  ask_standby = options.ask_standby;
  reader = std::make_unique<CheckpointReader>(options.checkpoint);
  metrics = std::make_unique<Metrics>(frontend->served_model_name());
  expert_metrics = options.gateway && options.gateway->expert_metrics;
  requests = std::make_unique<RequestDoor>(
      host.post(), Ref<RouterInbox>(kHeadNode, options.incarnation),
      RequestDoor::Options{frontend, metrics.get(), random_seed});
  KnownState known;
  if (options.keeper) {
    auto kept = options.keeper->known(checkpoint.hash(), options.engine.model);
    if (!kept.ok()) return kept.error();
    known = std::move(*kept);
  }
  Router::Options router;
  if (const Status read = read_journal(options, known, router); !read.ok()) return read;
  SupervisorOptions supervisor = supervisor_options(options, checkpoint);
  supervisor.known = std::move(known);
  router.tokenizer = frontend->tokenizer();
  router.on_tokens = options.on_tokens;
  router.prefix_caching = options.engine.prefix_caching;
  if (options.gateway) router.shares = KeyShares(ApiKeys(options.gateway->doors.api_keys).shares());
  router.started = {supervisor.started, supervisor.started_unix_ms};
  head = std::make_unique<Head>(
      host, Head::Parts{std::move(supervisor), std::move(router), *this, *requests,
                        journal ? this : nullptr, lane});
  if (journal) journal->begin();  // not earlier: that it cannot be written is Supervisor's news
  for (std::string& note : restored) tell_supervisor(NoteEvent{"journal", std::move(note)});
  SessionHub& hub = head->hub();
  copies.begin(hub, head->supervisor().address);
  clients = std::make_unique<ClientDoor>(
      *requests, [&hub, self = head->supervisor()](std::uint32_t session, ClientGeneration m) {
        return hub.send(session,
                        {self.address, hub.address_of(session), message_of(std::move(m))});
      });
  hub.set_clients(*clients);
  if (!options.listen) return {};
  const Status listening = lane.listen(host.system(), *options.listen, options.credentials,
                                       options.enrol, hub);
  if (!listening.ok()) return listening;
  auto join_line = options.join_line({options.listen->host, lane.port()});
  if (!join_line.ok()) return join_line.error();
  tell_supervisor(Listening{std::move(*join_line)});
  return {};
}

/// What an earlier life of the head has accepted, and where this one writes down what it accepts.
/// Where those need more room than requests get now, the cluster is formed for them.
Status HeadNode::Impl::read_journal(HeadOptions& options, KnownState& known,
                                    Router::Options& router) {
  if (options.journal_folder.empty()) return {};
  auto open = open_journal(
      {std::make_shared<DiskFiles>(), options.journal_folder,
       journal_model(options.engine, *options.checkpoint), options.cluster_id,
       options.engine.numerics, options.incarnation,
       random_seed},
      known);
  if (!open.ok()) return open.error();
  restored = notes_of(open->going_on, options.engine.max_model_len);
  if (const std::int64_t longest = open->going_on.longest; longest > options.engine.max_model_len) {
    const Status travels = check_steps_travel(options.checkpoint->spec(), options.engine, longest);
    if (!travels.ok()) return travels;
    options.engine.max_model_len = longest;
  }
  router.journal = std::make_shared<Journal>(std::move(open->journal));
  router.journal_file = open->first_file;
  router.journal_folder = options.journal_folder;
  const Ref<RouterInbox> self(kHeadNode, options.incarnation);
  journal = std::make_unique<JournalWriter>(JournalWriter::Options{
      std::move(open->disk),
      [this, self](JournalKept kept) { host.post().tell(self, kept); },
      [this, self](JournalFailed failed) { host.post().tell(self, std::move(failed)); }});
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
  if (const auto& chat = frontend->chat_format(); chat.ok()) {
    const ChatMessage hello{"user", "x"};
    const ReasoningStart start = chat->reasoning({&hello, 1});
    out.reasoning_style = to_string(start.style);
    out.reasoning_open = start.inside;
  }
  out.checkpoint_hash = checkpoint.hash();
  out.head_reads = checkpoint.has_tensors();
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
  out.keep_for = options.keep_for;
  out.keeps_journal = !options.journal_folder.empty();
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
  auto started =
      Gateway::start(*options.gateway, *requests, *requests, view, *gateway_model, *metrics);
  if (!started.ok()) return started.error();
  gateway = std::move(*started);
  return {};
}

/// Those who call end before those who are called: the doors, the Supervisor, the Router, whose
/// clients then hear of it, and the sessions.
HeadNode::Impl::~Impl() {
  gateway.reset();
  if (head) end(head->supervisor().address);
  keeping.reset();
  if (clients) clients->close();
  if (head) end(head->router().address);
  if (requests) requests->close();
  if (journal) {
    KeepRecords nothing;
    nothing.tells = true;  // so that what was written is on the disk, too
    journal->keep(std::move(nothing));
  }
  journal.reset();
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
  if (!expert_metrics) return;
  for (const auto& layer : counts.layers)
    for (std::size_t e = 0; e < layer.tokens.size(); ++e)
      if (layer.tokens[e] > 0)
        metrics->add_expert_tokens(layer.layer, static_cast<int>(e), layer.tokens[e]);
}

void HeadNode::Impl::measured(const ImbalanceMeasured& imbalance) {
  metrics->set_expert_imbalance(imbalance.layer, imbalance.imbalance);
}

void HeadNode::Impl::measured(const LoadsMeasured& loads) {
  metrics->add_device_loads(loads.node, loads.utilization);
}

std::string HeadNode::Impl::status(const Supervisor& supervisor) {
  const RequestCounts counts = requests->counts();
  return troupe::status_json(supervisor,
                             {counts.running, counts.waiting, counts.finished, counts.failed,
                              counts.replayed, requests->rates(), requests->list()},
                             host.now());
}

void HeadNode::Impl::changed(const Supervisor& supervisor) {
  seen.update(supervisor, lane.stats(), *metrics);
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

void HeadNode::Impl::may_end(const HeadMayEnd& end) {
  {
    std::lock_guard lock(mutex);
    standby = end.deposed_by;
    ended = true;
  }
  turned.notify_all();
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

std::string HeadNode::refuses() const {
  return ready() ? impl_->requests->trouble() : "The cluster is " + state() + ".";
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

bool HeadNode::takes_turns() const {
  const auto found = impl_->requests->find("", 0);  // that there is none is an answer, too
  return status_json() != "{}" && (found.ok() || found.error().code == ErrorCode::kNotFound);
}

std::size_t HeadNode::devices() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->devices;
}

std::string HeadNode::deposed_by() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->standby;
}

Status HeadNode::use(const Credentials& credentials) { return impl_->lane.use(credentials); }
void HeadNode::note(const std::string& kind, const std::string& text) {
  impl_->tell_supervisor(NoteEvent{kind, text});
}

void HeadNode::stop(const std::string& reason) {
  impl_->tell_supervisor(StopCluster{reason});
}

void HeadNode::leave() {
  impl_->requests->fall_silent();
  impl_->may_end({});
}

bool HeadNode::wait(Duration patience) {
  std::unique_lock lock(impl_->mutex);
  return impl_->turned.wait_for(lock, patience, [&] { return impl_->ended; });
}

}  // namespace troupe
