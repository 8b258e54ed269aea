#include "tests/actors/router/serving_simulation.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "actors/replica/replica.h"
#include "actors/router/router.h"
#include "runtime/overloaded.h"
#include "tests/actors/effects.h"
#include "tests/actors/replica/fake_model.h"
#include "tests/actors/router/serving_client.h"

namespace troupe::testing {
namespace {

using namespace std::chrono_literals;

/// No prompt has it but those that kill.
constexpr TokenId kPoison = kVocab;
/// Times in a row that a poisonous request may kill before it is given up: what it takes to convict
/// it, and the deaths of which the Router heard no word, or not that it had begun.
constexpr std::uint64_t kKillsMax = kStrikesInCompanyMax + 5;

/// With faults: for how long requests come, and nodes die by chance.
constexpr std::int32_t kSpanMs = 3000;

const Address kRouter{kHeadNode, Incarnation{1}, {ActorKind::kRouter, 0}};

/// A replica's machine, its shards, and what is on its way to them.
struct Worker {
  explicit Worker(const ReplicaConfig& c) : config(c), machine(c), shards(c.blocks, c.block_size) {}
  ReplicaConfig config;
  Replica machine;
  FakeShards shards;
  Address address;
  std::uint64_t last_step = 0;
  std::set<std::pair<SequenceId, std::uint32_t>> asked;  // Every attempt that arrived.
  struct Blocks {
    std::set<std::int32_t> read, written;
  };
  std::map<StepId, Blocks> blocks_in_flight;
  std::map<std::int32_t, std::vector<std::int32_t>> tables;  // by slot, as the plans told them
  bool lost = false;   // It does nothing any more.
  bool crashed = false;  // By what it computed: word of it may come.
  bool listed = true;    // The Router is to use it.
};

class Simulation {
 public:
  Simulation(std::uint64_t seed, Faults faults)
      : random_(seed),
        prefixes_(seed + 1),
        faults_(faults != Faults::kNone),
        poison_(faults == Faults::kPoison),
        router_(Router::Options{}) {}

  SimulationReport run() {
    add_workers();
    plan_clients();
    while (!queue_.empty()) {
      const auto next = queue_.begin();
      now_ = next->first.first;
      const Deed deed = std::move(next->second);
      queue_.erase(next);
      std::visit([this](const auto& d) { act(d); }, deed);
    }
    check_ends();
    return report_;
  }

 private:
  struct Arrival {
    std::size_t client;
  };
  struct Departure {
    std::size_t client;
  };
  struct Loss {};  // Of any that lives.
  struct Told {
    std::size_t worker;
  };  // The Router hears of a loss.
  struct Word {
    std::size_t worker;
  };  // It hears that it was a crash.
  struct Recovery {};
  struct Move {};  // Of any that lives.
  struct Stop {
    std::size_t worker;
  };
  struct Cut {};  // A worker's shards cannot be reached for a moment: what was under way is lost.
  struct Wake {
    std::optional<std::size_t> worker;
  };  // None: the Router.
  using Deed =
      std::variant<Arrival, Departure, Loss, Told, Word, Recovery, Move, Stop, Cut, Wake, Envelope>;

  std::int32_t pick(std::int32_t low, std::int32_t high) {
    return low + static_cast<std::int32_t>(random_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool chance(std::int32_t percent) { return pick(1, 100) <= percent; }
  TimePoint later_ms(std::int32_t low, std::int32_t high) {
    return TimePoint{} + std::chrono::milliseconds(pick(low, high));
  }
  void at(TimePoint time, Deed deed) {
    queue_.emplace(std::pair(time, next_deed_++), std::move(deed));
  }

  void add_workers() {
    const std::int32_t sizes[] = {1, 2, 4, 16};
    config_.router = {kHeadNode, Incarnation{1}};
    config_.block_size = sizes[pick(0, 3)];
    config_.max_model_len = 64;
    config_.blocks = (64 / config_.block_size) * pick(2, 5) / 2;
    config_.max_num_seqs = pick(1, 10);
    config_.max_num_batched_tokens = chance(50) ? pick(1, 12) : pick(13, 100);
    config_.stages = pick(1, 3);
    for (std::int32_t count = pick(1, 3); count > 0; --count) add_worker();
    list_replicas();
    if (!faults_) return;
    hangs_ = !poison_ && chance(30);
    for (std::int32_t i = 0, count = hangs_ ? 0 : pick(0, 5); i < count; ++i)
      at(later_ms(1, kSpanMs), Loss{});
    for (std::int32_t count = pick(0, 4); count > 0; --count) at(later_ms(1, kSpanMs), Move{});
    for (std::int32_t count = pick(0, 4); count > 0; --count) at(later_ms(1, kSpanMs), Cut{});
  }

  /// A replica of a new version, under a number that no other had.
  void add_worker() {
    ReplicaConfig config = config_;
    config.id = static_cast<std::uint32_t>(workers_.size());
    config.version = PlacementVersion{config.id + 1};
    const NodeId node{config.id + 1};
    for (std::uint32_t stage = 0; stage < static_cast<std::uint32_t>(config.stages); ++stage)
      config.shards.emplace_back(node, Incarnation{5}, shard_index(config.id, stage, 0));
    workers_.push_back(std::make_unique<Worker>(config));
    workers_.back()->address = {node, Incarnation{5}, {ActorKind::kReplica, config.id}};
  }

  void list_replicas() {
    std::vector<ReplicaEndpoint> endpoints;
    for (const auto& worker : workers_)
      if (worker->listed) endpoints.push_back({worker->config.id, worker->address, chance(10)});
    tell_router(ReplicasChanged{PlacementVersion{++version_}, std::move(endpoints)});
  }

  Client& client(std::uint64_t request) { return clients_[ids_.at(request)]; }

  Worker* any_worker() {
    std::vector<Worker*> alive;
    for (const auto& worker : workers_)
      if (worker->listed && !worker->lost) alive.push_back(worker.get());
    if (alive.empty()) return nullptr;
    return alive[static_cast<std::size_t>(pick(0, static_cast<std::int32_t>(alive.size()) - 1))];
  }

  void plan_clients() {
    clients_.resize(static_cast<std::size_t>(pick(1, faults_ ? 32 : 16)));
    for (std::size_t i = 0; i < clients_.size(); ++i) {
      PreparedRequest& prepared = clients_[i].prepared;
      for (std::int32_t length = pick(1, 40); length > 0; --length)
        prepared.prompt.push_back(pick(0, kVocab - 1));
      if (i > 0) begin_alike(clients_[prefixes_() % i].prepared.prompt, prepared.prompt);
      prepared.max_tokens = static_cast<std::uint32_t>(pick(1, 24));
      prepared.n = static_cast<std::uint32_t>(chance(80) ? 1 : pick(2, 4));
      prepared.sampling.temperature = chance(50) ? 1.0f : 0.0f;
      prepared.sampling.top_logprobs = chance(70) ? -1 : pick(0, 3);
      prepared.seed = random_();
      if (chance(60)) prepared.stop_tokens = {kEos};
      if (chance(30)) prepared.prompt_logprobs = pick(0, 3);
      if (prepared.prompt_logprobs >= 0 && chance(30)) prepared.max_tokens = 0;
      if (i % 16 == 3) clients_[i].pool(i == 3 ? Pooling::kAll : Pooling::kLast);
      prepared.timeout = 24h;
      clients_[i].hurried = faults_ && chance(10);
      if (clients_[i].hurried) prepared.timeout = std::chrono::milliseconds(pick(1, 100));
      if (poison_ && i == clients_.size() / 2) {
        clients_[i].poison = true;
        prepared.n = 1;
        prepared.prompt.back() = kPoison;
        ++report_.poison;
      }
      const TimePoint arrival = later_ms(0, faults_ ? kSpanMs : 200);
      at(arrival, Arrival{i});
      if (chance(15)) at(arrival + std::chrono::milliseconds(pick(0, 200)), Departure{i});
    }
  }

  void begin_alike(const std::vector<TokenId>& other, std::vector<TokenId>& prompt) {
    if (prefixes_() % 2 == 0 || other.back() == kPoison) return;
    const std::size_t length = 1 + prefixes_() % other.size();
    for (std::size_t i = 0; i < std::min(length, prompt.size()); ++i) prompt[i] = other[i];
  }

  // --- Deeds ---

  void act(const Arrival& arrival) {
    tell_router(SubmitRequest{arrival.client, clients_[arrival.client].prepared, 1});
  }

  void carry_out(const RequestAccepted& accepted) {
    Client& client = clients_[accepted.ticket];
    if (!accepted.request.ok()) {
      CHECK(faults_);
      CHECK_FALSE(admits_);
      CHECK(accepted.request.error().code == ErrorCode::kUnavailable);
      return;
    }
    client.begin();
    ids_[*accepted.request] = accepted.ticket;
    ++report_.requests;
  }

  void act(const Departure& departure) {
    for (const auto& [id, client] : ids_) {
      if (client != departure.client || clients_[client].done) continue;
      clients_[client].went_away = true;
      return tell_router(CancelRequest{id});
    }
  }

  void act(const Loss&) {
    Worker* worker = any_worker();
    if (!worker) return;
    ++report_.losses;
    lose(*worker);
  }

  void lose(Worker& worker) {
    worker.lost = true;
    // What it said before comes first: it is the same connection that ends.
    const TimePoint said = std::max(now_, links_[{worker.address, kRouter}]);
    at(said + std::chrono::milliseconds(pick(0, 50)), Told{worker.config.id});
    at(now_ + std::chrono::milliseconds(pick(50, 400)), Recovery{});
  }

  void act(const Told& told) {
    workers_[told.worker]->listed = false;
    admits_ = chance(70);
    tell_router(AdmissionChanged{admits_, "recovering"});
    const auto replica = static_cast<std::uint32_t>(told.worker);
    tell_router(LifeLost{Incarnation{told.worker}, {replica}});
    tell_router(ReplicasLost{{replica}, "node lost"});
    // What it left behind may be lost, too.
    if (workers_[told.worker]->crashed && !chance(5))
      at(now_ + std::chrono::milliseconds(pick(0, 150)), Word{told.worker});
  }

  void act(const Word& word) {
    tell_router(LifeCrashed{Incarnation{word.worker}, "node crashed"});
  }

  void act(const Recovery&) {
    add_worker();
    list_replicas();
  }

  void act(const Move&) {
    Worker* worker = any_worker();
    if (!worker) return;
    ++report_.moves;
    worker->listed = false;
    at(now_ + std::chrono::milliseconds(pick(0, 50)), Stop{worker->config.id});
    add_worker();
    list_replicas();
  }

  void act(const Stop& stop) { workers_[stop.worker]->lost = true; }

  void act(const Cut&) {
    Worker* worker = any_worker();
    if (!worker) return;
    const NodeId node = worker->address.node;
    std::erase_if(queue_, [&](const auto& entry) {
      const auto* envelope = std::get_if<Envelope>(&entry.second);
      return envelope && envelope->from.node == node && envelope->to.node == node;
    });
    tell(*worker, PeerDown{node, worker->address.incarnation, "cut off"});
  }

  void act(const Wake& wake) {
    if (!wake.worker) {
      wakes_[kRouter].erase(now_);
      RouterEffects effects;
      troupe::wake(router_, now_, effects);
      return carry_out(effects);
    }
    Worker& worker = *workers_[*wake.worker];
    wakes_[worker.address].erase(now_);
    if (worker.lost) return;
    Replica::Effects effects;
    troupe::wake(worker.machine, now_, effects);
    carry_out(worker, effects);
  }

  void act(const Envelope& envelope) {
    if (envelope.to == kRouter) return tell_router(envelope);
    Worker& worker = *workers_[envelope.to.node.value - 1];
    if (worker.lost) return return_to_sender(envelope);
    if (envelope.to.actor.kind != ActorKind::kReplica) return act_as_shard(worker, envelope);
    const auto* submit = std::get_if<Submit>(envelope.message.get());
    if (submit && worker.asked.emplace(submit->sequence, submit->attempt).second && chance(3))
      return refuse(worker, *submit);
    forget_blocks(worker, envelope);
    tell(worker, envelope);
  }

  /// Sometimes the head sees that a node is gone before it says so.
  void return_to_sender(const Envelope& envelope) {
    const auto* submit = std::get_if<Submit>(envelope.message.get());
    if (!submit || !chance(50)) return;
    send(
        kRouter, kRouter,
        message_of(Undeliverable{envelope.to, static_cast<std::uint32_t>(envelope.message->index()),
                                 submit->sequence.value, unavailable("it is gone")}));
  }

  /// The replica is not ready for it yet: nothing has begun, so it may go anywhere again.
  void refuse(Worker& worker, const Submit& submit) {
    SequenceEvent event;
    event.sequence = submit.sequence;
    event.attempt = submit.attempt;
    event.index = static_cast<std::uint32_t>(submit.output.size());
    event.error = unavailable("not started");
    send(worker.address, kRouter, message_of(SequenceEvents{worker.config.id, {event}}));
  }

  void act_as_shard(Worker& worker, const Envelope& envelope) {
    const auto* plan = std::get_if<StepPlan>(envelope.message.get());
    if (!plan || envelope.to != worker.config.shards.back().address) return;
    if (plan->body.step.value <= worker.last_step) return;  // A duplicate.
    worker.last_step = plan->body.step.value;
    for (const StepSequence& sequence : plan->body.sequences) {
      if (std::count(sequence.tokens.begin(), sequence.tokens.end(), kPoison) == 0) continue;
      ++report_.poisoned;
      REQUIRE(++kills_[sequence.id] <= kKillsMax);
      worker.crashed = true;
      return lose(worker);
    }
    if (faults_ && chance(1)) {
      send(envelope.to, worker.address,
           message_of(StepFailed{worker.config.id, plan->body.step, unavailable("step failed")}));
      return;
    }
    if (hangs_ && pick(1, 500) == 1) return;  // Hung: the deadline has to find out.
    send(envelope.to, worker.address,
         message_of(StepResult{worker.config.id, plan->body.step, worker.shards.run(plan->body)}));
  }

  // --- The network ---

  void send(const Address& from, const Address& to, const MessagePtr& message) {
    TimePoint& last = links_[{from, to}];
    for (int copies = chance(5) ? 2 : 1; copies > 0; --copies) {
      last = std::max(last, now_) + std::chrono::microseconds(pick(0, 4000));
      at(last, Envelope{from, to, message});
    }
  }

  void arrange(const Address& who, std::optional<TimePoint> time,
               std::optional<std::size_t> worker) {
    if (time && wakes_[who].insert(*time).second) at(std::max(*time, now_), Wake{worker});
  }

  // --- Turns ---

  template <class M>
  void tell_router(M message) {
    RouterEffects effects;
    turn(router_, std::move(message), now_, effects);
    carry_out(effects);
  }

  template <class M>
  void tell(Worker& worker, M message) {
    Replica::Effects effects;
    turn(worker.machine, std::move(message), now_, effects);
    carry_out(worker, effects);
  }

  void carry_out(const RouterEffects& effects) {
    CHECK(router_.violation() == "");
    for (const auto& effect : effects.list())
      std::visit(Overloaded{[&](const Send& e) { send(kRouter, e.to, e.message); },
                            [&](const RequestAccepted& e) { carry_out(e); },
                            [&](const DeliverEvent& e) { client(e.request).receive(e.event); },
                            [](const auto&) {}},
                 effect);
    arrange(kRouter, effects.wake(), std::nullopt);
  }

  void carry_out(Worker& worker, const Replica::Effects& effects) {
    CHECK(worker.machine.violation() == "");
    for (const Send& s : all<Send>(effects)) {
      if (const auto* plan = std::get_if<StepPlan>(s.message.get())) check_plan(worker, *plan);
      if (const auto* abort = std::get_if<StepAbort>(s.message.get()))
        worker.blocks_in_flight.erase(abort->step);
      send(worker.address, s.to, s.message);
    }
    arrange(worker.address, effects.wake(), worker.config.id);
  }

  // --- Checks ---

  void check_plan(Worker& worker, const StepPlan& plan) {
    if (worker.blocks_in_flight.contains(plan.body.step)) return;  // The same for the next shard.
    Worker::Blocks blocks;
    std::size_t rows = 0;
    for (const StepSequence& sequence : plan.body.sequences) {
      rows += sequence.tokens.size();
      std::vector<std::int32_t>& table = worker.tables[sequence.table_slot];
      if (sequence.table_base == 0) table.clear();
      CHECK(table.size() == static_cast<std::size_t>(sequence.table_base));
      table.insert(table.end(), sequence.block_table.begin(), sequence.block_table.end());
      const auto first = static_cast<std::size_t>(sequence.first_position /
                                                  worker.config.block_size);
      for (std::size_t i = 0; i < table.size(); ++i)
        if (i < first)
          blocks.read.insert(table[i]);
        else
          CHECK(blocks.written.insert(table[i]).second);
    }
    const auto apart = [](const std::set<std::int32_t>& a, const std::set<std::int32_t>& b) {
      return std::ranges::none_of(a, [&](std::int32_t block) { return b.contains(block); });
    };
    CHECK(apart(blocks.written, blocks.read));
    for (const auto& [step, others] : worker.blocks_in_flight) {
      CHECK(apart(blocks.written, others.read));
      CHECK(apart(blocks.written, others.written));
      CHECK(apart(blocks.read, others.written));
    }
    CHECK(rows >= 1);
    CHECK(rows <= static_cast<std::size_t>(worker.config.max_num_batched_tokens));
    CHECK(plan.body.sequences.size() <= static_cast<std::size_t>(worker.config.max_num_seqs));
    worker.blocks_in_flight[plan.body.step] = std::move(blocks);
    CHECK(worker.blocks_in_flight.size() <= static_cast<std::size_t>(worker.config.stages));
  }

  void forget_blocks(Worker& worker, const Envelope& envelope) {
    if (const auto* result = std::get_if<StepResult>(envelope.message.get()))
      worker.blocks_in_flight.erase(result->step);
    if (const auto* failed = std::get_if<StepFailed>(envelope.message.get()))
      worker.blocks_in_flight.erase(failed->step);
  }

  void check_ends() {
    for (const Client& client : clients_) client.check(report_);
    for (const auto& worker : workers_) {
      const ReplicaReport report = worker->machine.report();
      report_.preemptions += report.preemptions;
      if (worker->lost) continue;
      CHECK(report.running == 0);
      CHECK(report.waiting == 0);
      CHECK(report.kv_blocks_used == 0);
    }
    const RequestCounts counts = router_.counts();
    CHECK(counts.running + counts.waiting == 0);
    CHECK(router_.journal().words() == 0);
    CHECK(router_.journal().sequences() == 0);
    report_.finished = counts.finished;
    report_.failed = counts.failed;
    report_.cancelled = counts.cancelled;
    report_.replayed = counts.replayed;
  }

  std::mt19937_64 random_, prefixes_;
  bool faults_, poison_, hangs_ = false;
  ReplicaConfig config_;  // Of all, but for their numbers.
  std::uint64_t version_ = 0;
  bool admits_ = false;
  std::map<SequenceId, std::uint64_t> kills_;
  TimePoint now_{};
  Router router_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Client> clients_;
  std::map<std::uint64_t, std::size_t> ids_;  // Of requests, to clients.
  std::map<std::pair<Address, Address>, TimePoint> links_;
  std::map<Address, std::set<TimePoint>> wakes_;
  std::map<std::pair<TimePoint, std::uint64_t>, Deed> queue_;
  std::uint64_t next_deed_ = 0;
  SimulationReport report_;
};

}  // namespace

SimulationReport simulate_serving(std::uint64_t seed, Faults faults) {
  return Simulation(seed, faults).run();
}

}  // namespace troupe::testing
