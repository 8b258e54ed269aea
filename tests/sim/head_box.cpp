#include "tests/sim/head_box.h"

#include "actors/head/head.h"
#include "actors/supervisor/status.h"
#include "tests/sim/fake_model.h"
#include "tests/sim/world.h"

namespace troupe::sim {

using namespace std::chrono_literals;

// --- The process --------------------------------------------------------------------------------

struct HeadBox::Program {
  std::unique_ptr<HeadLink> link;
  std::uint64_t query = 0;
  bool over = false;
};

struct HeadBox::Life {
  Life(HeadBox& box, SupervisorOptions options)
      : host(box.world_, 0),
        head(host, {started_at(host.now(), std::move(options)), {}, box, box.world_.clients,
                    box.world_.control}) {}
  ~Life() { host.clear(); }
  static SupervisorOptions started_at(TimePoint now, SupervisorOptions options) {
    options.started = now;
    return options;
  }

  SimHost host;
  Head head;
  std::vector<std::unique_ptr<Program>> programs;
};

HeadBox::HeadBox(World& world) : world_(world) {}
HeadBox::~HeadBox() = default;

Post& HeadBox::post() { return life_->host.post(); }
Ref<RouterInbox> HeadBox::router_address() const { return life_->head.router(); }

void HeadBox::start() {
  if (up() || ended_) return;
  lives_.push_back(std::make_unique<Life>(*this, options()));
  life_ = lives_.back().get();
  world_.control.serve(life_->host, life_->head.hub());
}

SupervisorOptions HeadBox::options() {
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
  options.engine.kv_cache_memory = shape.kv_memory;
  options.engine.max_num_seqs = shape.max_seqs;
  options.engine.max_num_batched_tokens = shape.max_batched;
  options.engine.pipeline_parallel_size = shape.pipeline;
  options.engine.tensor_parallel_size = shape.tensor;
  options.engine.data_parallel_size = shape.replicas;
  options.engine.redundant_experts = shape.redundant;
  options.costs = [](Numerics) { return costs(); };
  options.compute = [](Numerics, int, std::int32_t) {
    return ComputeCosts{1, 1, [](std::int32_t, std::int32_t) { return 0u; },
                        [](std::int64_t) { return 0u; }};
  };
  options.random = [this](std::span<std::byte> bytes) {
    for (auto& b : bytes) b = static_cast<std::byte>(world_.loop.draw());
  };
  options.next_node = kept_next_node_;
  options.known = known_;
  options.vocab_size = kVocab;
  // The calendar's clock steps: it may stand before what it showed in the life before.
  kept_incarnation_ = first_incarnation(
      kept_incarnation_, static_cast<std::int64_t>(world_.loop.pick(0, 1'000'000'000'000)));
  if (kept_incarnation_ <= newest_incarnation_)
    world_.broken("A head's life got an old incarnation.");
  newest_incarnation_ = kept_incarnation_;
  options.incarnation = Incarnation{kept_incarnation_};
  return options;
}

void HeadBox::kill() {
  if (!up()) return;
  life_->host.kill();
  life_ = nullptr;
  world_.control.head_died();
  world_.clients.head_died();
}

void HeadBox::hang() {
  if (up()) life_->host.hang();
}

void HeadBox::go_on(bool clock_stood) {
  if (!up() || !life_->host.hung()) return;
  if (clock_stood) life_->host.forget_hang();
  life_->host.go_on();
}

const Supervisor* HeadBox::supervisor() const {
  if (!up()) return nullptr;
  return life_->host.find<Supervisor, HeadHands>(life_->head.supervisor().address);
}

const Router* HeadBox::router() const {
  if (!up()) return nullptr;
  return life_->host.find<Router, RouterHands>(life_->head.router().address);
}

void HeadBox::stop(const std::string& reason) {
  if (up()) life_->host.post().tell(life_->head.supervisor(), StopCluster{reason});
}

// --- Programs -----------------------------------------------------------------------------------

template <class Query>
void HeadBox::ask(Query query) {
  if (!up()) return;
  life_->programs.push_back(std::make_unique<Program>());
  Program& program = *life_->programs.back();
  program.query = query.query = next_query_++;
  program.link = life_->head.hub().make_local_link();
  program.link->listen({[] {}, [this, &program](const Envelope& e) { answer(program, *e.message); },
                        [](const std::string&, bool) {}});
  program.link->connect();
  const Address to = life_->head.supervisor().address;
  (void)program.link->send({{}, to, message_of(ClientHello{kProtocol, "simulation"})});
  (void)program.link->send({{}, to, message_of(StatusQuery{next_query_++})});
  (void)program.link->send({{}, to, message_of(std::move(query))});
}

void HeadBox::answer(Program& program, const Message& message) {
  const auto* news = std::get_if<OperationProgress>(&message);
  if (!news) return;
  if (news->query != program.query || program.over)
    world_.broken("News of an operation that is over.");
  if (!news->finished) return;
  program.over = true;
  life_->host.later({}, [&program] { program.link->close(); });
}

void HeadBox::drain(NodeId node) { ask(DrainQuery{0, node}); }

void HeadBox::rebalance() { ask(RebalanceQuery{0}); }

void HeadBox::crashed(NodeId node, Incarnation life) {
  ask(CrashReport{0, node, life, 11, "a request that kills its workers"});
}

bool HeadBox::operations_over() const {
  if (!up()) return true;
  for (const auto& program : life_->programs)
    if (!program->over) return false;
  return true;
}

// --- What lies around its actors ----------------------------------------------------------------

void HeadBox::keep(const KeepTensors& e) {
  for (const KnownTensor& tensor : e.tensors) {
    std::erase_if(known_.tensors, [&](const auto& known) {
      return known.proof.tensor == tensor.proof.tensor;
    });
    known_.tensors.push_back(tensor);
  }
}

void HeadBox::read(ReadTensors wanted) {
  TensorsRead read{wanted.reading, wanted.fresh, {}, 0, {}};
  for (const std::string& tensor : wanted.tensors) read.tensors.push_back(proof_of(tensor));
  life_->host.later(std::chrono::milliseconds(world_.loop.pick(1, 20)),
                    [this, life = life_, read = std::move(read)]() mutable {
                      life->host.post().tell(life->head.supervisor(), std::move(read));
                    });
}

std::string HeadBox::status(const Supervisor& supervisor) {
  return status_json(supervisor, {}, life_->host.now());
}

void HeadBox::changed(const Supervisor& supervisor) {
  for (const auto& [id, member] : supervisor.members()) {
    if (const auto it = given_.find(member.incarnation); it != given_.end()) {
      if (it->second != id) world_.broken("Two nodes got the same incarnation.");
      continue;
    }
    if (member.incarnation.value <= newest_incarnation_)
      world_.broken("An incarnation came again.");
    newest_incarnation_ = member.incarnation.value;
    given_[member.incarnation] = id;
  }
}

void HeadBox::may_end() {
  ended_ = true;
  // After what was sent has left.
  world_.loop.after(1ms, [this] { kill(); });
}

}  // namespace troupe::sim
