#include "tests/sim/rules.h"

#include <map>
#include <set>

#include "runtime/limits.h"
#include "tests/sim/world.h"

namespace troupe::sim {
namespace {

/// What may be under way between two machines: far more means that somebody sends without end.
constexpr std::size_t kUnderWayMax = 5000;

/// Whoever is past its lease, or stands still, may only not know it yet.
bool holds_a_role(const Worker& worker) {
  return worker.alive() && !worker.hung() && worker.agent().state() == NodeAgent::State::kMember &&
         worker.clock() < worker.agent().lease_end();
}

}  // namespace

void check_rules(World& world) {
  std::map<NodeId, Incarnation> roles;
  std::set<std::pair<std::uint32_t, Incarnation>> shards;  // of one head's life
  for (int w = 0; w < world.workers(); ++w) {
    const Worker& worker = world.worker(w);
    if (!holds_a_role(worker)) continue;
    const NodeAgent& agent = worker.agent();
    if (!roles.emplace(agent.id(), agent.incarnation()).second)
      world.broken("Two live incarnations of " + to_string(agent.id()) + " hold a role.");
    if (const NodeActors* actors = worker.actors())
      for (const auto& [index, shard] : actors->shards())
        if (!shards.insert({index, worker.head_life()}).second)
          world.broken("Two nodes serve shard " + std::to_string(index) + ".");
    if (!world.head.up()) continue;
    for (const auto& gone : world.head.supervisor().gone())
      if (gone.incarnation == agent.incarnation() &&
          gone.lost_reason.find("did not renew its lease") != std::string::npos)
        world.broken("A lease ended at the head before it did at " + to_string(gone.id) + ".");
  }
  if (world.network.under_way_most() > kUnderWayMax)
    world.broken("A connection carries more messages than there can be.");
}

void check_idle(World& world) {
  const RequestCounts counts = world.head.router().counts();
  if (counts.running + counts.waiting > 0) world.broken("The Router has requests that nobody has.");
  if (world.head.router().journal().tokens() + world.head.router().journal().sequences() > 0)
    world.broken("The journal holds what is over.");
  for (int w = 0; w < world.workers(); ++w) {
    const NodeActors* actors = world.worker(w).actors();
    if (!actors) continue;
    for (const ReplicaReport& report : actors->reports())
      if (report.running + report.waiting > 0 || report.kv_blocks_used > 0)
        world.broken("Replica " + std::to_string(report.replica) +
                     " works for nobody, or keeps blocks.");
    for (const auto& [index, shard] : actors->shards())
      if (shard->machine.steps() > 0)
        world.broken("Shard " + std::to_string(index) + " keeps a step that is over.");
  }
}

}  // namespace troupe::sim
