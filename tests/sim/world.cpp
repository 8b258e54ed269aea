#include "tests/sim/world.h"

#include <cstdlib>
#include <set>

#include "actors/router/router.h"
#include "actors/supervisor/supervisor.h"
#include "runtime/log.h"
#include "tests/sim/rules.h"

namespace troupe::sim {

using namespace std::chrono_literals;

namespace {

/// What may happen in one moment of virtual time.
constexpr int kEventsThenMax = 20'000;
/// What may happen in a whole history; they have some thousands.
constexpr std::uint64_t kEventsMax = 1'000'000;
/// A bit that flipped, or a kernel that broke, is found within two seconds here; then actors end.
constexpr Duration kFoundMax = 5s;
/// What was computed before may be on its way.
constexpr Duration kOnItsWay = 1s;

/// How many shards and copies of experts it has there.
std::size_t pieces_on(const Placement& placement, NodeId node) {
  std::size_t pieces = 0;
  for (const auto& shard : placement.shards) pieces += shard.device.node == node;
  for (const auto& layer : placement.experts)
    for (const auto& slot : layer.slots) pieces += slot.device.node == node;
  return pieces;
}

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
  found += other.found;
  forgotten += other.forgotten;
  tables_appended += other.tables_appended;
  express += other.express;
  given_up += other.given_up;
  resumed += other.resumed;
  refused += other.refused;
  takeovers += other.takeovers;
  lives_kept += other.lives_kept;
  deaths += other.deaths;
  events += other.events;
  longest_wait = std::max(longest_wait, other.longest_wait);
}

World::World(const History& history)
    : loop(history.seed),
      network(loop),
      control(*this),
      bulk(*this),
      head(*this, history),
      clients(*this),
      steps(*this),
      history_(history) {
  // The actors' own words, for whoever looks at one history.
  logger().set_level(std::getenv("TROUPE_SIM_LOG") ? spdlog::level::info : spdlog::level::off);
  for (int w = 0; w < history.shape.workers; ++w)
    workers_.push_back(std::make_unique<WorkerBox>(*this, w));
}

/// Nothing runs any more; then what was to run goes, while what it refers to is still there.
World::~World() {
  head.kill();
  for (const auto& each : workers_) each->kill();
  loop.clear();
}

void World::begin() {
  loop.after(loop.pick_ms(0, 300), [this] { head.start(); });
  if (shape().standby) loop.after(loop.pick_ms(300, 1500), [this] { head.start_dead(); });
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
  WorkerBox& w = worker(fault.worker);
  note_change();
  if (!fault.lasting) ++faults_now_;
  if (!fault.lasting) struck_.push_back(fault.kind);
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
      return flap(fault, loop.now() + fault.lasts);
    case FaultKind::kResetSession:
      return control.reset(fault.worker + 1);
    case FaultKind::kStuck:
      return w.set_stuck(true);
    case FaultKind::kSlowDevice:
      return w.set_slow(true);
    case FaultKind::kDeviceFails:
      return w.fail_device(fault.other % shape().devices);
    case FaultKind::kSlowDisk:
    case FaultKind::kLoadsFail:
    case FaultKind::kWeightsGone:
    case FaultKind::kDiskHangs:
    case FaultKind::kDiskDenied:
    case FaultKind::kOtherFiles:
    case FaultKind::kOddTensors:
      return strike_disk(fault, 1);
    case FaultKind::kFlippedBit:
    case FaultKind::kBrokenKernels:
      return strike_numbers(fault);
    case FaultKind::kSlowHead:
    case FaultKind::kSlowPair:
      return slow(fault, false);
    case FaultKind::kDrain:
      if (const NodeAgent* agent = w.member()) head.drain(agent->id());
      return;
    case FaultKind::kRebalance:
      head.measure();
      return head.rebalance();
    case FaultKind::kHotExperts:
      ++hot_experts;
      return;
    case FaultKind::kHeadDies:
    case FaultKind::kStandbyDies:
      return head.strike(fault, [this, lasts = std::min<Duration>(fault.lasts, 1s)] {
        ++counters.deaths;
        note_change();
        loop.after(lasts, [this] {
          head.start_dead();
          note_change();
        });
      });
    case FaultKind::kCutHeads:
      return cut_heads(fault, false);
    case FaultKind::kSleep:
      return w.hang();
    case FaultKind::kHeadHangs:
      return head.hang();
    case FaultKind::kAllSleep:
      head.hang();
      for (auto& each : workers_) each->hang();
      return;
    case FaultKind::kCorruptAnswers:
      corrupt_answers.insert(fault.worker + 1);
      return;
  }
}

void World::strike_disk(const Fault& fault, int change) {
  WorkerBox& w = worker(fault.worker);
  if (fault.kind == FaultKind::kSlowDisk) w.disk.slow += change;
  if (fault.kind == FaultKind::kLoadsFail) w.disk.failing += change;
  if (fault.kind == FaultKind::kWeightsGone) w.disk.gone += change;
  if (fault.kind == FaultKind::kDiskHangs) w.disk.hanging += change;
  if (fault.kind == FaultKind::kDiskDenied) w.disk.denied += change;
  if (fault.kind == FaultKind::kOtherFiles) w.disk.revised += change;
  if (fault.kind == FaultKind::kOddTensors) w.disk.odd_tensors += change;
  if (fault.kind != FaultKind::kOtherFiles && fault.kind != FaultKind::kOddTensors) return;
  bad.insert(fault.worker);
  // A process trusts no file that changed after it was opened.
  w.kill();
  w.start();
}

void World::strike_numbers(const Fault& fault) {
  WorkerBox& w = worker(fault.worker);
  auto still = fault.kind == FaultKind::kFlippedBit
                   ? w.flip_bit()
                   : w.break_kernels(fault.other % shape().devices);
  if (!still) return;
  bad.insert(fault.worker);
  wrong_.push_back({loop.now(), std::move(still)});
  clients.doubt();
}

void World::check_wrong() {
  if (wrong_.empty()) return;
  std::erase_if(wrong_, [](const Wrong& wrong) { return !wrong.still(); });
  wrong_until_ = loop.now() + kOnItsWay;
  if (faults_now() > 0) return;
  for (const Wrong& wrong : wrong_)
    if (loop.now() - std::max(wrong.since, changed_at()) > kFoundMax)
      return broken("What a node computes with is wrong, and is not found.");
}

void World::heal(const Fault& fault) {
  WorkerBox& w = worker(fault.worker);
  note_change();
  if (!fault.lasting) --faults_now_;
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
    case FaultKind::kBrokenKernels:
      if (!w.device_broken(fault.other % shape().devices)) return;
      w.kill();
      return w.start();
    case FaultKind::kSlowDisk:
    case FaultKind::kLoadsFail:
    case FaultKind::kWeightsGone:
    case FaultKind::kDiskHangs:
    case FaultKind::kDiskDenied:
    case FaultKind::kOtherFiles:
    case FaultKind::kOddTensors:
      return strike_disk(fault, -1);
    case FaultKind::kSlowHead:
    case FaultKind::kSlowPair:
      return slow(fault, true);
    case FaultKind::kHotExperts:
      --hot_experts;
      return;
    case FaultKind::kHeadDies:
    case FaultKind::kStandbyDies:
      return head.spare();
    case FaultKind::kCutHeads:
      return cut_heads(fault, true);
    case FaultKind::kSleep:
      return w.go_on(true);
    case FaultKind::kHeadHangs:
      return head.go_on(false);
    case FaultKind::kAllSleep:
      return wake_all();
    case FaultKind::kCorruptAnswers:
      corrupt_answers.erase(fault.worker + 1);
      return;
    case FaultKind::kResetPair:
    case FaultKind::kResetSession:
    case FaultKind::kDrain:
    case FaultKind::kRebalance:
    case FaultKind::kFlippedBit:
      return;
  }
}

/// One after the other, within a moment.
void World::wake_all() {
  loop.after(loop.pick_ms(0, 50), [this] { head.go_on(loop.chance(50)); });
  for (auto& each : workers_)
    loop.after(loop.pick_ms(0, 50), [this, w = each.get()] { w->go_on(loop.chance(50)); });
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

/// From each other, and some of the workers from one of them.
void World::cut_heads(const Fault& fault, bool heals) {
  const int heads[] = {0, workers() + 1};
  const auto way = [&](int a, int b) {
    for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
      if (heals)
        network.heal(from, to);
      else
        network.cut(from, to);
    }
  };
  way(heads[0], heads[1]);
  const int lonely = heads[fault.at.count() % 2];
  for (int w = 0; w < workers(); ++w)
    if ((w + fault.worker) % 2 == 0 || w == fault.other) way(lonely, w + 1);
}

void World::slow(const Fault& fault, bool heals) {
  const int w = fault.worker + 1, other = fault.kind == FaultKind::kSlowHead ? 0 : fault.other + 1;
  for (const auto& [from, to] : {std::pair(w, other), std::pair(other, w)}) {
    if (heals)
      network.speed_up(from, to);
    else
      network.slow_down(from, to);
  }
}

void World::flap(const Fault& fault, TimePoint end) {
  if (loop.now() > end) return;
  bulk.reset(fault.worker + 1, fault.other + 1);
  loop.after(loop.pick_ms(5, 300), [this, fault, end] { flap(fault, end); });
}

void World::exited(int number, const WorkerExit& exit) {
  if (exit.code != 0)
    return broken("Worker " + std::to_string(number) + " gave up: " + exit.reason);
  if (!stopping) loop.after(500ms, [this, number] { worker(number).start(); });
}

void World::poisoned(int machine) {
  const int number = machine - 1;
  // What it leaves behind tells the head, before its connection's end does or later; not always.
  if (const NodeAgent* member = worker(number).member(); member && loop.pick(1, 10) > 1)
    loop.after(loop.pick_ms(0, 150), [this, node = member->id(), life = member->incarnation()] {
      head.crashed(node, life);
    });
  worker(number).kill();
  loop.after(loop.pick_ms(100, 500), [this, number] { worker(number).start(); });
}

// --- Looking at it ------------------------------------------------------------------------------

bool World::all_serve() const {
  const Supervisor* supervisor = head.supervisor();
  if (!supervisor || supervisor->state() != ClusterState::kReady) return false;
  if (!supervisor->active() || supervisor->pending()) return false;
  std::set<NodeId> used;
  for (const auto& shard : supervisor->active()->shards) used.insert(shard.device.node);
  for (const auto& layer : supervisor->active()->experts)
    for (const auto& slot : layer.slots) used.insert(slot.device.node);
  for (const auto& w : workers_) {
    const NodeAgent* agent = w->member();
    if (!agent) return false;
    const auto member = supervisor->members().find(agent->id());
    if (member == supervisor->members().end() ||
        member->second.incarnation != agent->incarnation() ||
        member->second.state == MemberState::kDraining)
      return false;
    if (used.contains(agent->id()) && agent->active() != supervisor->active()->version)
      return false;
  }
  return true;
}

std::string World::describe() const {
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(loop.now() - TimePoint{} - 1h);
  std::string text = "  at " + std::to_string(ms.count()) + " ms, ";
  if (const Supervisor* supervisor = head.supervisor()) {
    text += "head " + std::string(to_string(supervisor->state())) + ": " + supervisor->message();
    if (supervisor->pending())
      text += "; loading " + std::to_string(supervisor->pending()->version.value);
    if (supervisor->active())
      text += "; in force " + std::to_string(supervisor->active()->version.value);
    for (const auto& [id, member] : supervisor->members()) {
      text += "; " + to_string(id) + " " + std::string(to_string(member.state));
      if (!member.closed_reason.empty()) text += ", closed";
      if (supervisor->active()) text += ", " + std::to_string(pieces_on(*supervisor->active(), id));
    }
    text += "\n";
    for (const auto& event : supervisor->events())
      text +=
          "    " + std::to_string(event.time_unix_ms) + " " + event.kind + ": " + event.text + "\n";
  } else {
    text += "no head\n";
  }
  for (const auto& w : workers_) text += w->describe();
  return text + clients.describe();
}

}  // namespace troupe::sim
