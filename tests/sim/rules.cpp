#include "tests/sim/rules.h"

#include <algorithm>
#include <map>
#include <set>

#include "actors/layer_shard/layer_shard.h"
#include "actors/layer_shard/shard_hands.h"
#include "actors/router/router.h"
#include "actors/supervisor/supervisor.h"
#include "runtime/limits.h"
#include "tests/sim/world.h"

namespace troupe::sim {
namespace {

/// What may be under way between two machines: far more means that somebody sends without end.
constexpr std::size_t kUnderWayMax = 5000;

void check_roles(World& world) {
  // Two heads may be there for a moment, of which one knows nothing of the other's newcomers.
  std::set<std::pair<Incarnation, NodeId>> roles;  // by the head's life
  std::set<Incarnation> lives;
  std::set<std::pair<std::uint32_t, Incarnation>> shards;  // of one head's life
  const Supervisor* supervisor = world.head.supervisor();
  for (int w = 0; w < world.workers(); ++w) {
    // What is past its lease, or stands still, may only not know it yet.
    const NodeAgent* agent = world.worker(w).member();
    if (!agent || world.worker(w).hung() || world.worker(w).host().clock_stood()) continue;
    if (!roles.emplace(agent->head(), agent->id()).second)
      world.broken("Two live incarnations of " + to_string(agent->id()) + " hold a role.");
    if (!lives.insert(agent->incarnation()).second) world.broken("Two workers have the same life.");
    for (const auto& [address, mailbox] : world.worker(w).host().actors())
      if (address.actor.kind == ActorKind::kLayerShard &&
          !shards.insert({address.actor.index, agent->head()}).second)
        world.broken("Two nodes serve shard " + std::to_string(address.actor.index) + ".");
    if (!supervisor || supervisor->options().incarnation != agent->head()) continue;
    for (const auto& gone : supervisor->gone())
      if (gone.incarnation == agent->incarnation() &&
          gone.lost_reason.find("did not renew its lease") != std::string::npos)
        world.broken("A lease ended at the head before it did at " + to_string(gone.id) + ".");
  }
}

/// Who is taken out for a proof has given a reason. Looked at when one more is lost.
void check_verdicts(World& world) {
  const Supervisor* supervisor = world.head.supervisor();
  if (!supervisor || supervisor->counters().lost == world.lost_seen) return;
  world.lost_seen = supervisor->counters().lost;
  for (const auto& gone : supervisor->gone()) {
    if (gone.lost_reason.find("it failed a proof") == std::string::npos) continue;
    const int worker = std::stoi(gone.inventory.host.substr(std::string("host-").size()));
    if (!world.bad.contains(worker))
      world.broken("Worker " + std::to_string(worker) + " was taken out for what others did: " +
                   gone.lost_reason);
  }
}

void check_waits(World& world) {
  const auto since = world.clients.waits_since();
  if (world.head.distrusts_disk()) return world.note_change();
  if (!since || world.faults_now() > 0) return;
  const Duration wait = world.loop.now() - std::max(*since, world.changed_at());
  world.counters.longest_wait = std::max(world.counters.longest_wait, wait);
  if (wait <= wait_max(world.struck())) return;
  world.broken("Requests wait for more than " +
               std::to_string(std::chrono::duration_cast<std::chrono::seconds>(wait).count()) +
               " s in a cluster to which nothing happens.");
}

}  // namespace

Duration wait_max(std::span<const FaultKind> struck) {
  Duration more{};
  for (const LongWait& wait : kLongWaits)
    if (std::find(struck.begin(), struck.end(), wait.after) != struck.end())
      more = std::max(more, wait.more);
  return kWaitMax + more;
}

void check_rules(World& world) {
  check_roles(world);
  check_waits(world);
  check_verdicts(world);
  world.check_wrong();
  if (world.network.under_way_most() > kUnderWayMax)
    world.broken("A connection carries more messages than there can be.");
}

bool at_rest(World& world) {
  for (int w = 0; w < world.workers(); ++w) {
    const WorkerMachine& machine = *world.worker(w).machine();
    if (!machine.serving()) continue;
    for (const ReplicaReport& report : machine.serving()->reports())
      if (report.kv_blocks_used > 0) return false;
    const SimHost& host = world.worker(w).host();
    for (const auto& [address, mailbox] : host.actors())
      if (const auto* shard = host.find<LayerShard, ShardHands>(address))
        if (shard->steps() > 0) return false;
  }
  return true;
}

void check_idle(World& world) {
  const Router& router = *world.head.router();
  const RequestCounts counts = router.counts();
  if (counts.running + counts.waiting > 0) world.broken("The Router has requests that nobody has.");
  for (const auto& [id, request] : router.journal().all())
    if (!request.ended) world.broken("The journal takes for unfinished what is over.");
  if (const std::string record = world.head.broken_record(); !record.empty())
    world.broken("A record of the journal: " + record);
  for (int w = 0; w < world.workers(); ++w) {
    const WorkerMachine& machine = *world.worker(w).machine();
    if (!machine.serving()) continue;
    for (const ReplicaReport& report : machine.serving()->reports())
      if (report.running + report.waiting > 0 || report.kv_blocks_used > 0)
        world.broken("Replica " + std::to_string(report.replica) +
                     " works for nobody, or keeps blocks.");
    const SimHost& host = world.worker(w).host();
    for (const auto& [address, mailbox] : host.actors())
      if (const auto* shard = host.find<LayerShard, ShardHands>(address))
        if (shard->steps() > 0) world.broken(to_string(address) + " keeps a step that is over.");
  }
}

}  // namespace troupe::sim
