#include "tests/sim/bulk_lane.h"

#include "tests/sim/world.h"

namespace troupe::sim {

void BulkLane::open(int worker, const Peer& peer, Duration deadline) {
  Pair& pair = pairs_[peer.token];
  const int life = world_.worker(worker).life();
  pair.ends[worker] = {life, peer};
  if (pair.ends.size() > 2) world_.broken("Three nodes have the same token.");
  world_.loop.after(world_.network.delay(), [this, token = peer.token] { meet(token); });
  world_.loop.after(deadline,
                    [this, worker, life, token = peer.token] { give_up(worker, life, token); });
}

void BulkLane::meet(const FabricToken& token) {
  const auto it = pairs_.find(token);
  if (it == pairs_.end() || it->second.up || it->second.ends.size() != 2) return;
  Pair& pair = it->second;
  const int a = pair.ends.begin()->first, b = pair.ends.rbegin()->first;
  if (!world_.network.both_reach(a + 1, b + 1)) return;
  pair.up = true;
  pair.connection = world_.network.open(a + 1, b + 1);
  const std::map<int, End> ends = pair.ends;
  for (const auto& [worker, end] : ends)
    world_.worker(worker).run(end.life, [this, worker = worker, peer = end.peer] {
      world_.worker(worker).peer_up(peer);
    });
}

void BulkLane::give_up(int worker, int life, const FabricToken& token) {
  const auto it = pairs_.find(token);
  if (it == pairs_.end() || it->second.up) return;
  const auto end = it->second.ends.find(worker);
  if (end == it->second.ends.end() || end->second.life != life) return;
  const End gone = end->second;
  it->second.ends.erase(end);
  if (it->second.ends.empty()) pairs_.erase(it);
  tell_down(worker, gone, "it did not come in time");
}

void BulkLane::tell_down(int worker, const End& end, const char* reason) {
  world_.worker(worker).run(end.life, [this, worker, peer = end.peer, reason] {
    world_.worker(worker).peer_down(peer, reason);
  });
}

bool BulkLane::send(int worker, const FabricToken& token, const Envelope& envelope) {
  const auto it = pairs_.find(token);
  if (it == pairs_.end() || !it->second.up || !it->second.ends.contains(worker)) return false;
  world_.network.send(it->second.connection, worker + 1, [this, worker, token, envelope] {
    const auto found = pairs_.find(token);
    if (found == pairs_.end()) return;
    for (const auto& [other, end] : found->second.ends) {
      if (other == worker) continue;
      world_.worker(other).run(end.life, [this, other = other, peer = end.peer, envelope] {
        world_.worker(other).peer_says(peer, envelope);
      });
    }
  });
  return true;
}

void BulkLane::close(int worker, const FabricToken& token) {
  const auto it = pairs_.find(token);
  if (it == pairs_.end() || it->second.ends.erase(worker) == 0) return;
  if (!it->second.up) {
    if (it->second.ends.empty()) pairs_.erase(it);
    return;
  }
  // What was sent before arrives before.
  world_.network.send(it->second.connection, worker + 1, [this, token] {
    const auto found = pairs_.find(token);
    if (found == pairs_.end()) return;
    const Pair pair = found->second;
    pairs_.erase(found);
    world_.network.close(pair.connection);
    for (const auto& [other, end] : pair.ends) tell_down(other, end, "the connection ended");
  });
}

void BulkLane::worker_died(int worker) {
  std::vector<FabricToken> tokens;
  for (const auto& [token, pair] : pairs_)
    if (pair.ends.contains(worker)) tokens.push_back(token);
  for (const FabricToken& token : tokens) close(worker, token);
}

void BulkLane::reset(int a, int b) {
  std::vector<FabricToken> tokens;
  for (const auto& [token, pair] : pairs_)
    if (pair.up && pair.ends.contains(a) && pair.ends.contains(b)) tokens.push_back(token);
  for (const FabricToken& token : tokens) {
    const Pair pair = pairs_.at(token);
    pairs_.erase(token);
    world_.network.close(pair.connection);
    for (const auto& [worker, end] : pair.ends)
      world_.loop.after(world_.network.delay(), [this, worker = worker, end = end] {
        tell_down(worker, end, "the connection was reset");
      });
  }
}

}  // namespace troupe::sim
