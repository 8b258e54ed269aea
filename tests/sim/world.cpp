#include "tests/sim/world.h"

#include <set>

#include "tests/sim/rules.h"

namespace troupe::sim {

using namespace std::chrono_literals;

namespace {

/// What may happen in one moment of virtual time.
constexpr int kEventsThenMax = 20'000;
/// What may happen in a whole history; they have some thousands.
constexpr std::uint64_t kEventsMax = 1'000'000;

}  // namespace

void Counters::add(const Counters& other) {
  requests += other.requests;
  finished += other.finished;
  tokens += other.tokens;
  steps += other.steps;
  steps_failed += other.steps_failed;
  dispatches += other.dispatches;
  not_here += other.not_here;
  replays += other.replays;
  versions += other.versions;
  recoveries += other.recoveries;
  moves += other.moves;
  lost += other.lost;
  given_up += other.given_up;
  too_large += other.too_large;
  events += other.events;
}

World::World(const History& history)
    : loop(history.seed),
      network(loop),
      control(*this),
      bulk(*this),
      head(*this),
      clients(*this),
      history_(history) {
  for (int w = 0; w < history.shape.workers; ++w)
    workers_.push_back(std::make_unique<Worker>(*this, w));
}

void World::begin() {
  loop.after(loop.pick_ms(0, 300), [this] { head.start(); });
  for (int w = 0; w < workers(); ++w)
    loop.after(shape().starts[static_cast<std::size_t>(w)], [this, w] { worker(w).start(); });
  for (const Fault& fault : history_.faults)
    loop.after(fault.at, [this, fault] {
      strike(fault);
      loop.after(fault.lasts, [this, fault] { heal(fault); });
    });
  clients.begin(history_.requests);
}

bool World::run_until(const std::function<bool()>& done, Duration limit) {
  const TimePoint end = loop.now() + limit;
  TimePoint moment = loop.now();
  int events_then = 0;
  while (violation_.empty() && !done()) {
    if (!loop.run_next(end)) return false;
    events_then = loop.now() == moment ? events_then + 1 : 0;
    moment = loop.now();
    if (checks && events_then == kEventsThenMax)
      broken("Somebody asks again and again to be woken at once.");
    if (checks && loop.events() == kEventsMax) broken("Something goes on without end.");
    if (checks) check_rules(*this);
  }
  return violation_.empty();
}

void World::broken(const std::string& rule) {
  if (violation_.empty()) violation_ = rule + "\n" + describe();
}

// --- Faults -------------------------------------------------------------------------------------

void World::strike(const Fault& fault) {
  Worker& w = worker(fault.worker);
  switch (fault.kind) {
    case FaultKind::kKill:
      return w.kill();
    case FaultKind::kKillAll:
      for (auto& each : workers_) each->kill();
      return;
    case FaultKind::kHang:
      return w.hang();
    case FaultKind::kCut:
    case FaultKind::kCutToHead:
    case FaultKind::kCutFromHead:
    case FaultKind::kCutOff:
    case FaultKind::kCutPair:
    case FaultKind::kCutPairOneWay:
      return cut(fault, false);
    case FaultKind::kResetPair:
      return bulk.reset(fault.worker, fault.other);
    case FaultKind::kResetSession:
      return control.reset(fault.worker);
    case FaultKind::kStuck:
      return w.set_stuck(true);
    case FaultKind::kSlowDevice:
      return w.set_slow(true);
    case FaultKind::kDeviceFails:
      if (w.alive()) w.fail_device(static_cast<std::uint32_t>(fault.other % shape().devices));
      return;
    case FaultKind::kSlowDisk:
      w.disk().slow = true;
      return;
    case FaultKind::kLoadsFail:
      ++w.disk().failing;
      return;
    case FaultKind::kWeightsGone:
      ++w.disk().gone;
      return;
    case FaultKind::kDrain:
      if (w.alive() && w.agent().state() == NodeAgent::State::kMember) head.drain(w.agent().id());
      return;
    case FaultKind::kRebalance:
      return head.rebalance();
    case FaultKind::kHotExperts:
      ++hot_experts;
      return;
    case FaultKind::kHeadDies:
      return head.kill();
  }
}

void World::heal(const Fault& fault) {
  Worker& w = worker(fault.worker);
  switch (fault.kind) {
    case FaultKind::kKill:
      return w.start();
    case FaultKind::kKillAll:
      for (auto& each : workers_) each->start();
      return;
    case FaultKind::kHang:
      return w.go_on();
    case FaultKind::kCut:
    case FaultKind::kCutToHead:
    case FaultKind::kCutFromHead:
    case FaultKind::kCutOff:
    case FaultKind::kCutPair:
    case FaultKind::kCutPairOneWay:
      return cut(fault, true);
    case FaultKind::kStuck:
      return w.set_stuck(false);
    case FaultKind::kSlowDevice:
      return w.set_slow(false);
    case FaultKind::kDeviceFails:
      if (!w.alive() ||
          w.devices()[static_cast<std::size_t>(fault.other % shape().devices)].failed.empty())
        return;
      w.kill();
      return w.start();
    case FaultKind::kSlowDisk:
      w.disk().slow = false;
      return;
    case FaultKind::kLoadsFail:
      --w.disk().failing;
      return;
    case FaultKind::kWeightsGone:
      --w.disk().gone;
      return;
    case FaultKind::kHotExperts:
      --hot_experts;
      return;
    case FaultKind::kHeadDies:
      return head.start();
    case FaultKind::kResetPair:
    case FaultKind::kResetSession:
    case FaultKind::kDrain:
    case FaultKind::kRebalance:
      return;
  }
}

void World::cut(const Fault& fault, bool heals) {
  const auto way = [&](int from, int to) {
    if (heals)
      network.heal(from, to);
    else
      network.cut(from, to);
  };
  const int w = fault.worker + 1, other = fault.other + 1;
  const FaultKind kind = fault.kind;
  if (kind == FaultKind::kCut || kind == FaultKind::kCutToHead) way(w, 0);
  if (kind == FaultKind::kCut || kind == FaultKind::kCutFromHead) way(0, w);
  if (kind == FaultKind::kCutPair || kind == FaultKind::kCutPairOneWay) way(w, other);
  if (kind == FaultKind::kCutPair) way(other, w);
  if (kind != FaultKind::kCutOff) return;
  for (int machine = 0; machine <= workers(); ++machine) {
    if (machine == w) continue;
    way(w, machine);
    way(machine, w);
  }
}

void World::exited(int number, const NodeAgentActions::Exit& exit) {
  if (exit.code != 0)
    return broken("Worker " + std::to_string(number) + " gave up: " + exit.reason);
  if (!stopping) loop.after(500ms, [this, number] { worker(number).start(); });
}

// --- Looking at it ------------------------------------------------------------------------------

bool World::all_serve() const {
  if (!head.up() || head.supervisor().state() != ClusterState::kReady) return false;
  const Supervisor& supervisor = head.supervisor();
  if (!supervisor.active() || supervisor.pending()) return false;
  std::set<NodeId> used;
  for (const auto& shard : supervisor.active()->shards) used.insert(shard.device.node);
  for (const auto& layer : supervisor.active()->experts)
    for (const auto& slot : layer.slots) used.insert(slot.device.node);
  for (const auto& w : workers_) {
    if (!w->alive() || w->agent().state() != NodeAgent::State::kMember) return false;
    const auto member = supervisor.members().find(w->agent().id());
    if (member == supervisor.members().end() ||
        member->second.incarnation != w->agent().incarnation() ||
        member->second.state == MemberState::kDraining)
      return false;
    if (used.contains(w->agent().id()) && w->agent().active() != supervisor.active()->version)
      return false;
  }
  return true;
}

std::string World::describe() const {
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(loop.now() - TimePoint{} - 1h);
  std::string text = "  at " + std::to_string(ms.count()) + " ms, ";
  if (head.up()) {
    const Supervisor& supervisor = head.supervisor();
    text += "head " + std::string(to_string(supervisor.state())) + ": " + supervisor.message();
    if (supervisor.pending())
      text += "; loading " + std::to_string(supervisor.pending()->version.value);
    if (supervisor.active())
      text += "; in force " + std::to_string(supervisor.active()->version.value);
    text += "\n";
    for (const auto& event : supervisor.events())
      text +=
          "    " + std::to_string(event.time_unix_ms) + " " + event.kind + ": " + event.text + "\n";
  } else {
    text += "no head\n";
  }
  for (const auto& w : workers_) text += w->describe();
  return text + clients.describe();
}

}  // namespace troupe::sim
