#include "tests/sim/bulk_network.h"

#include <algorithm>

#include "runtime/limits.h"
#include "tests/sim/world.h"

namespace troupe::sim {

bool BulkNetwork::Pair::has(const SimLane& lane) const {
  const auto it = ends.find(lane.host().machine());
  return it != ends.end() && it->second.lane == &lane;
}

BulkNetwork::Pairs::iterator BulkNetwork::find(const SimLane& lane, const FabricToken& token) {
  return std::find_if(pairs_.begin(), pairs_.end(), [&](const auto& entry) {
    return entry.second.token == token && entry.second.has(lane);
  });
}

void BulkNetwork::open(SimLane& lane, const Peer& peer, Duration deadline) {
  auto it = std::find_if(pairs_.begin(), pairs_.end(), [&](const auto& entry) {
    return entry.second.token == peer.token && !entry.second.up;
  });
  if (it == pairs_.end()) it = pairs_.emplace(next_++, Pair{peer.token, {}}).first;
  Pair& pair = it->second;
  pair.ends[lane.host().machine()] = {&lane, peer};
  if (pair.ends.size() > 2) world_.broken("Three nodes have the same token.");
  world_.loop.after(world_.network.delay(), [this, number = it->first] { meet(number); });
  world_.loop.after(deadline, [this, &lane, number = it->first] { give_up(lane, number); });
}

void BulkNetwork::meet(std::uint64_t number) {
  const auto it = pairs_.find(number);
  if (it == pairs_.end() || it->second.up || it->second.ends.size() != 2) return;
  Pair& pair = it->second;
  const int a = pair.ends.begin()->first, b = pair.ends.rbegin()->first;
  if (!world_.network.both_reach(a, b)) return;
  pair.up = true;
  pair.connection = world_.network.open(a, b);
  const std::map<int, End> ends = pair.ends;
  for (const auto& [machine, end] : ends) end.lane->up(end.peer);
}

void BulkNetwork::give_up(const SimLane& lane, std::uint64_t number) {
  const auto it = pairs_.find(number);
  if (it == pairs_.end() || it->second.up || !it->second.has(lane)) return;
  const auto gone = it->second.ends.extract(lane.host().machine()).mapped();
  if (it->second.ends.empty()) pairs_.erase(it);
  gone.lane->down(gone.peer, "it did not come in time");
}

bool BulkNetwork::carry(int from, std::uint64_t number, Arrive arrive) {
  const auto it = pairs_.find(number);
  if (it == pairs_.end() || !it->second.up || !it->second.ends.contains(from)) return false;
  const auto at_other = [this, from, number, arrive = std::move(arrive)] {
    const auto found = pairs_.find(number);
    if (found == pairs_.end()) return;
    const std::map<int, End> ends = found->second.ends;
    for (const auto& [machine, end] : ends)
      if (machine != from) arrive(end);
  };
  world_.network.send(it->second.connection, from, at_other);
  return true;
}

bool BulkNetwork::send(const SimLane& lane, const FabricToken& token, const Envelope& envelope) {
  const auto it = find(lane, token);
  if (it == pairs_.end()) return false;
  return carry(lane.host().machine(), it->first,
               [envelope](const End& at) { at.lane->arrive(at.peer, envelope); });
}

void BulkNetwork::ask(const SimLane& lane, const FabricToken& token) {
  const auto it = find(lane, token);
  if (it == pairs_.end()) return;
  carry(lane.host().machine(), it->first, [this, number = it->first](const End& at) {
    at.lane->host().run([this, number, at] {
      at.lane->heard(at.peer);
      carry(at.lane->host().machine(), number, [](const End& asker) {
        asker.lane->host().run([asker] { asker.lane->heard(asker.peer); });
      });
    });
  });
}

void BulkNetwork::close(const SimLane& lane, const FabricToken& token) {
  const auto it = find(lane, token);
  if (it == pairs_.end()) return;
  it->second.ends.erase(lane.host().machine());
  if (!it->second.up) {
    if (it->second.ends.empty()) pairs_.erase(it);
    return;
  }
  // What was sent before arrives before.
  world_.network.send(it->second.connection, lane.host().machine(), [this, number = it->first] {
    const auto found = pairs_.find(number);
    if (found == pairs_.end()) return;
    const Pair pair = found->second;
    pairs_.erase(found);
    world_.network.close(pair.connection);
    for (const auto& [machine, end] : pair.ends) end.lane->down(end.peer, "the connection ended");
  });
}

void BulkNetwork::died(const SimLane& lane) {
  std::vector<FabricToken> tokens;
  for (const auto& [number, pair] : pairs_)
    if (pair.has(lane)) tokens.push_back(pair.token);
  for (const FabricToken& token : tokens) close(lane, token);
}

void BulkNetwork::reset(int a, int b) {
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, pair] : pairs_)
    if (pair.up && pair.ends.contains(a) && pair.ends.contains(b)) numbers.push_back(number);
  for (const std::uint64_t number : numbers) {
    const Pair pair = pairs_.at(number);
    pairs_.erase(number);
    world_.network.close(pair.connection);
    for (const auto& [machine, end] : pair.ends)
      world_.loop.after(world_.network.delay(),
                        [end = end] { end.lane->down(end.peer, "the connection was reset"); });
  }
}

// --- One end of it ------------------------------------------------------------------------------

void SimLane::identify(NodeId, Incarnation) {
  for (const auto& [life, token] : std::exchange(known_, {})) network_.close(*this, token);
  traffic_.clear();
  fenced_.clear();
}

Status SimLane::expect(const Peer& peer) { return seek(peer, limits::kBulkExpectDeadline); }

Status SimLane::connect(const Peer& peer) { return seek(peer, limits::kBulkConnectDeadline); }

Status SimLane::seek(const Peer& peer, Duration deadline) {
  if (!host_.alive()) return {};
  if (const auto it = fenced_.find(peer.id); it != fenced_.end() && peer.incarnation <= it->second)
    return unavailable("That life of the peer is over.");
  known_[{peer.id, peer.incarnation}] = peer.token;
  network_.open(*this, peer, deadline);
  return {};
}

void SimLane::forget(NodeId node, Incarnation incarnation, bool fence) {
  if (!host_.alive()) return;
  if (const auto it = known_.find({node, incarnation}); it != known_.end()) {
    network_.close(*this, it->second);
    traffic_.erase(it->first);
    known_.erase(it);
  }
  if (fence) fenced_[node] = std::max(fenced_[node], incarnation);
}

Status SimLane::send(NodeId node, Incarnation incarnation, const Envelope& envelope) {
  const auto it = known_.find({node, incarnation});
  if (!host_.alive() || it == known_.end() || !network_.send(*this, it->second, envelope))
    return unavailable(to_string(node) + " cannot be reached.");
  if (const auto up = traffic_.find(it->first); up != traffic_.end()) up->second.sent = host_.now();
  return {};
}

void SimLane::ask(NodeId node, Incarnation incarnation) {
  const auto it = known_.find({node, incarnation});
  if (host_.alive() && it != known_.end()) network_.ask(*this, it->second);
}

std::vector<PeerTraffic> SimLane::traffic() const {
  std::vector<PeerTraffic> all;
  for (const auto& [life, traffic] : traffic_) all.push_back(traffic);
  return all;
}

void SimLane::heard(const Peer& peer) {
  const auto up = traffic_.find({peer.id, peer.incarnation});
  if (knows(peer) && up != traffic_.end()) up->second.heard = host_.now();
}

bool SimLane::knows(const Peer& peer) const {
  const auto it = known_.find({peer.id, peer.incarnation});
  return it != known_.end() && it->second == peer.token;
}

void SimLane::up(const Peer& peer) {
  host_.run([this, peer] {
    if (!knows(peer)) return;
    traffic_[{peer.id, peer.incarnation}] = {peer.id, peer.incarnation, {}, host_.now()};
    events_->on_peer_up(peer.id, peer.incarnation);
  });
}

void SimLane::down(const Peer& peer, const std::string& reason) {
  host_.run([this, peer, reason] {
    if (!knows(peer)) return;
    known_.erase({peer.id, peer.incarnation});
    traffic_.erase({peer.id, peer.incarnation});
    events_->on_peer_down(peer.id, peer.incarnation, {reason});
  });
}

void SimLane::arrive(const Peer& peer, const Envelope& envelope) {
  host_.run([this, peer, envelope] {
    heard(peer);
    if (knows(peer)) events_->on_envelope(peer.id, peer.incarnation, envelope);
  });
}

}  // namespace troupe::sim
