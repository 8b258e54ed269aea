#include "tests/sim/head_box.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "actors/head/head.h"
#include "actors/head/standby_copy.h"
#include "actors/standby/standby.h"
#include "actors/standby/standby_asker.h"
#include "actors/supervisor/status.h"
#include "runtime/log.h"
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

namespace {

/// A Router's journal goes to the disk, and to whoever follows.
class CopyingStore final : public JournalStore {
 public:
  CopyingStore(SimHost& host, SimJournal& journal) : host_(host), journal_(journal) {}
  StandbyCopy copies;
  void keep(KeepRecords records) override {
    if (records.copy_to != 0) copies.copy(records);
    if (host_.acts()) journal_.keep(std::move(records));
  }
  void note(const JournalNote& note) override {
    if (host_.alive()) journal_.note(note);
  }

 private:
  SimHost& host_;
  SimJournal& journal_;
};

/// What a head tells counts as long as clients are with it.
class Desk final : public RequestDesk {
 public:
  Desk(SimHost& host, HeadBox& box, World& world) : host_(host), box_(box), world_(world) {}
  void accepted(RequestAccepted accepted) override {
    if (current() && host_.acts()) world_.clients.accepted(std::move(accepted));
  }
  void deliver(DeliverEvent delivery) override {
    if (current() && host_.acts()) world_.clients.deliver(std::move(delivery));
  }
  void found(RequestsFound found) override { world_.clients.found(std::move(found)); }
  void observe(const RequestObservation& seen) override { world_.clients.observe(seen); }
  void changed(const Router& router) override { world_.clients.changed(router); }

 private:
  bool current() const { return world_.head.is_door(box_); }
  SimHost& host_;
  HeadBox& box_;
  World& world_;
};

/// One that outlives whoever uses it: what is under way may still refer to it.
class LentLink final : public HeadLink {
 public:
  LentLink(SimLink& link, ControlNetwork& network) : link_(link), network_(network) {}
  ~LentLink() override {
    link_.listen(
        {[](const ControlWay&) {}, [](const Envelope&) {}, [](const std::string&, bool) {}});
    network_.died(link_);
  }
  void listen(Events events) override { link_.listen(std::move(events)); }
  void connect() override { link_.connect(); }
  Status send(const Envelope& envelope) override { return link_.send(envelope); }
  void close() override { link_.close(); }

 private:
  SimLink& link_;
  ControlNetwork& network_;
};

}  // namespace

struct HeadBox::Life {
  Life(HeadBox& box, const SupervisorOptions& options)
      : host(box.world_, box.machine_),
        store(host, box.journal_),
        desk(host, box, box.world_),
        head(host, {started_at(host.now(), options), router_options(box, options), box, desk,
                    &store, box.world_.control}),
        asker([this, &box](const HostPort&) -> Result<std::unique_ptr<HeadLink>> {
          return std::unique_ptr<HeadLink>(std::make_unique<LentLink>(
              asked.emplace_back(host, box.world_.control, std::vector{box.partner_}),
              box.world_.control));
        }) {
    store.copies.begin(head.hub(), head.supervisor().address);
  }
  ~Life() { host.clear(); }
  Router::Options router_options(HeadBox& box, const SupervisorOptions& options) {
    Router::Options router;
    router.shares = KeyShares(kKeys);
    // The calendar's clock steps.
    router.started = {host.now(), static_cast<std::int64_t>(box.lives_.size()) * 1'000'000};
    const Ref<RouterInbox> self(kHeadNode, options.incarnation);
    const SimJournal::Found found = box.journal_.open(
        host,
        {[this, self](JournalKept kept) { host.post().tell(self, kept); },
         [this, self](JournalFailed failed) { host.post().tell(self, std::move(failed)); }},
        options.incarnation, box.known_);
    router.journal = found.journal;
    router.journal_file = found.first_file;
    if (found.journal) box.world_.clients.check_restored(*found.journal);
    return router;
  }
  static SupervisorOptions started_at(TimePoint now, SupervisorOptions options) {
    options.started = now;
    return options;
  }

  SimHost host;
  CopyingStore store;
  Desk desk;
  Head head;
  std::deque<SimLink> asked;
  StandbyAsker asker;
  std::vector<std::unique_ptr<Program>> programs;
};

// --- As a standby -------------------------------------------------------------------------------

struct StandbyDouble {  ///< the hands of one
  HeadBox* box;
  HeadBox::Follower* life;
  void carry_out(SeekHead&&, const Standby&);
  void carry_out(LeaveHead&&, const Standby&);
  void carry_out(ToHead&& e, const Standby&);
  void carry_out(ToSession&& e, const Standby&);
  void carry_out(EndSession&& e, const Standby&);
  void carry_out(KeepCopy&& e, const Standby&);
  void carry_out(KeepFollowing&& e, const Standby&);
  void carry_out(KeepKnown&&, const Standby&) {}
  void carry_out(TakeOver&&, const Standby&);
  void carry_out(StandbyEnds&& e, const Standby&);
  void carry_out(StandbySays&& e, const Standby&) { logger().info("standby: {}", e.text); }
};

struct HeadBox::Follower final : ControlEvents {
  explicit Follower(HeadBox& box)
      : host(box.world_, box.machine_),
        link(host, box.world_.control, {box.partner_}),
        self(kHeadNode, Incarnation{1}) {
    const auto tell = [this](auto message) { host.post().tell(self, std::move(message)); };
    link.listen({[tell](const ControlWay&) { tell(HeadUp{}); },
                 [this](Envelope e) {
                   e.to = self.address;
                   host.post().deliver(std::move(e));
                 },
                 [tell](std::string why, bool foreign) {
                   tell(HeadDown{std::move(why), foreign});
                 }});
    Standby::Options options;
    options.version = "";
    options.checkpoint_hash = "hash";
    options.engine = box.options().engine;
    options.address = to_string(listens_at(box.machine_));
    options.earlier = box.following_;
    options.earlier.head_address = to_string(listens_at(box.partner_));
    options.journal_file = box.journal_.follow(host, {tell, tell});
    options.random = [&loop = box.world_.loop] { return loop.draw(); };
    options.next_term = [&box](Incarnation newest) {
      box.kept_incarnation_ = std::max(box.kept_incarnation_, newest.value);
      return Incarnation{first_incarnation(box.kept_incarnation_, 0)};
    };
    host.spawn(self.address,
               [this, &box, options](const troupe::Life&) {
                 return std::make_unique<Shell<Standby, StandbyDouble>>(
                     host, self.address, Standby(options), StandbyDouble{&box, this});
               },
               {});
  }
  ~Follower() override { host.clear(); }
  Address address_of(std::uint32_t session) const {
    return Ref<SessionInbox>(kHeadNode, self.address.incarnation, session).address;
  }
  void on_session_up(SessionId session, SessionEnds ends) override {
    host.post().tell(self, SessionUp{session.value, std::move(ends.peer)});
  }
  void on_message(SessionId session, Envelope envelope) override {
    envelope.from = address_of(session.value);
    envelope.to = self.address;
    host.post().deliver(std::move(envelope));
  }
  void on_session_down(SessionId session, SessionEnd end) override {
    host.post().tell(self, SessionDown{session.value, std::move(end.text)});
  }

  SimHost host;
  SimLink link;
  Ref<StandbyInbox> self;
};

void StandbyDouble::carry_out(SeekHead&&, const Standby&) { life->link.connect(); }
void StandbyDouble::carry_out(LeaveHead&&, const Standby&) { life->link.close(); }
void StandbyDouble::carry_out(ToHead&& e, const Standby&) {
  (void)life->link.send({life->self.address, {}, std::move(e.message)});
}
void StandbyDouble::carry_out(ToSession&& e, const Standby&) {
  (void)box->world_.control.send(
      e.session, {life->self.address, life->address_of(e.session), std::move(e.message)});
}
void StandbyDouble::carry_out(EndSession&& e, const Standby&) {
  box->world_.control.close(e.session, e.reason);
}
void StandbyDouble::carry_out(KeepCopy&& e, const Standby&) {
  if (life->host.acts()) box->journal_.keep(std::move(e.records));
}
void StandbyDouble::carry_out(KeepFollowing&& e, const Standby&) {
  if (!life->host.acts()) return;
  box->following_ = e.state;
  if (!e.state.cluster_id.empty()) box->journal_.learn_cluster(e.state.cluster_id);
}
void StandbyDouble::carry_out(TakeOver&&, const Standby&) {
  life->host.later({}, [b = box] { b->take_over(); });
}
void StandbyDouble::carry_out(StandbyEnds&& e, const Standby&) {
  if (!life->host.alive()) return;
  if (e.code != 0) box->world_.broken("A standby gave up: " + e.reason);
  box->ended_ = true;
  life->host.later({}, [b = box] { b->kill(); });
}

/// While it asks its standby whether it may go on.
struct HeadBox::Asker {
  explicit Asker(HeadBox& box)
      : host(box.world_, box.machine_),
        asker([this, &box](const HostPort&) -> Result<std::unique_ptr<HeadLink>> {
          return std::unique_ptr<HeadLink>(std::make_unique<LentLink>(
              asked.emplace_back(host, box.world_.control, std::vector{box.partner_}),
              box.world_.control));
        }) {}
  ~Asker() { host.clear(); }
  SimHost host;
  std::deque<SimLink> asked;
  StandbyAsker asker;
};

// --- The process, whatever it is ----------------------------------------------------------------

HeadBox::HeadBox(World& world, int machine, int partner, bool follows, std::uint64_t seed,
                 Mutation mutation)
    : world_(world),
      machine_(machine),
      partner_(partner),
      journal_(seed, mutation),
      follows_(follows) {}
HeadBox::~HeadBox() = default;

Post& HeadBox::post() { return life_->host.post(); }
Ref<RouterInbox> HeadBox::router_address() const { return life_->head.router(); }

bool HeadBox::alive() const { return life_ || follower_ || asker_; }

void HeadBox::start() {
  if (alive() || ended_) return;
  if (follows_) return follow();
  if (!standby_at_.empty()) return ask_partner();
  lead();
}

void HeadBox::lead() {
  started_ = world_.loop.now();
  lives_.push_back(std::make_unique<Life>(*this, options()));
  life_ = lives_.back().get();
  world_.control.serve(life_->host, life_->head.hub());
  world_.head.look();
}

void HeadBox::follow() {
  followers_.push_back(std::make_unique<Follower>(*this));
  follower_ = followers_.back().get();
  world_.control.serve(follower_->host, *follower_);
}

/// Its term is above those that it asked for.
void HeadBox::take_over() {
  kill();
  follows_ = false;
  kept_incarnation_ = std::max(kept_incarnation_, following_.term.value);
  kept_next_node_ = following_.next_node;
  following_ = {};
  standby_at_.clear();
  known_ = world_.head.other(*this).known_;  // as it was told, line by line
  lead();
}

void HeadBox::become_follower() {
  kill();
  follows_ = true;
  standby_at_.clear();
  following_ = {};
  follow();
}

void HeadBox::ask_partner() {
  if (!asker_) {
    askers_.push_back(std::make_unique<Asker>(*this));
    asker_ = askers_.back().get();
  }
  Asker* const asking = asker_;
  asking->asker.ask(standby_at_, "cluster", {}, [this, asking](StandbyAnswered answer) {
    asking->host.later({}, [this, asking, answer] {
      if (asker_ != asking) return;
      if (answer.rules) return become_follower();
      kill();
      standby_at_.clear();
      lead();
    });
  });
  asking->host.later(1s, [this, asking] {
    if (asker_ == asking) ask_partner();
  });
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
  if (kept_incarnation_ % 3 == 0) options.keep_for = {};  // the next comes too late for it
  return options;
}

SimHost* HeadBox::host() {
  return life_ ? &life_->host : follower_ ? &follower_->host : asker_ ? &asker_->host : nullptr;
}

void HeadBox::die_at(std::uint64_t act, bool power_cut, Task died) {
  if (SimHost* const dying = host())
    dying->die_at(act, [this, dying, power_cut, died = std::move(died)] {
      if (host() == dying) kill(power_cut);
      died();
    });
}

void HeadBox::spare() {
  if (SimHost* const spared = host()) spared->spare();
}

void HeadBox::kill(bool power_cut) {
  if (!alive()) return;
  host()->kill();
  if (follower_) world_.control.died(follower_->link);
  life_ = nullptr;
  follower_ = nullptr;
  asker_ = nullptr;
  journal_.close(power_cut);
  world_.control.head_died(machine_);
  world_.head.look();
}

void HeadBox::hang() {
  if (life_) life_->host.hang();
  if (follower_) follower_->host.hang();
}

void HeadBox::go_on(bool clock_stood) {
  SimHost* const host = life_ ? &life_->host : follower_ ? &follower_->host : nullptr;
  if (!host || !host->hung()) return;
  if (clock_stood) host->forget_hang();
  host->go_on();
}

const Standby* HeadBox::standby() const {
  return follower_ ? follower_->host.find<Standby, StandbyDouble>(follower_->self.address)
                   : nullptr;
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
  program.link->listen({[](const ControlWay&) {},
                        [this, &program](const Envelope& e) { answer(program, *e.message); },
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

void HeadBox::measure() { ask(NetworkQuery{0, {}, 0, {1u << 20}, true, false}); }

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

void HeadBox::keep(const KeepNextNode& e) {
  if (host()->acts()) kept_next_node_ = e.next_node;
}

void HeadBox::keep(const KeepNumerics& e) {
  if (!host()->acts()) return;
  known_.numerics = e.numerics;
  journal_.learn_numerics(e.numerics);
}

void HeadBox::keep(const KeepCanary& e) {
  if (host()->acts()) known_.canary = e.canary;
}

void HeadBox::keep(const ForgetKnown&) {
  if (host()->acts()) known_ = {};
}

void HeadBox::keep(const KeepTensors& e) {
  if (!host()->acts()) return;
  for (const KnownTensor& tensor : e.tensors) {
    std::erase_if(known_.tensors,
                  [&](const auto& known) { return known.proof.tensor == tensor.proof.tensor; });
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

void HeadBox::noted(const ClusterEvent& event) {
  logger().info("{}: {}", event.kind, event.text);
}

std::string HeadBox::status(const Supervisor& supervisor) {
  return status_json(supervisor, {}, life_->host.now());
}

void HeadBox::changed(const Supervisor& supervisor) {
  if (!host()->alive()) return;
  for (const auto& [id, member] : supervisor.members()) {
    world_.head.note_life(*this, member.incarnation, id, newest_incarnation_);
  }
}

void HeadBox::keep(const KeepStandby& e) {
  if (!host()->acts()) return;
  standby_at_ = e.address;
  if (e.session != 0)
    life_->host.post().tell(life_->head.supervisor(), StandbyKept{e.session, std::nullopt});
}

void HeadBox::ask(const AskStandby& standby) {
  life_->asker.ask(standby.address, "cluster", Incarnation{kept_incarnation_},
                   [this, life = life_](StandbyAnswered answer) {
                     life->host.post().tell(life->head.supervisor(), std::move(answer));
                   });
}

void HeadBox::may_end(const HeadMayEnd& end) {
  if (!host()->alive()) return;
  if (!end.deposed_by.empty()) return life_->host.later({}, [this] { become_follower(); });
  ended_ = true;
  // After what was sent has left.
  world_.loop.after(1ms, [this] { kill(); });
}

}  // namespace troupe::sim
