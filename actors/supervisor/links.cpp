#include <algorithm>

#include "actors/supervisor/supervisor.h"

// Pairs of members that reach the head but not each other: first their connection is made anew, and
// if that fails one of them is fenced and kept out of plans for a while.

namespace troupe {
namespace {

/// A second report within this time means that the new connection broke or never came.
constexpr auto kLinkMemory = std::chrono::seconds(10);
/// How long a node that was fenced for a link takes no part, doubled each time.
constexpr auto kQuarantineMin = std::chrono::seconds(1);
constexpr auto kQuarantineMax = std::chrono::seconds(30);

}  // namespace

bool Supervisor::quarantined(NodeId node) const {
  const auto it = quarantine_.find(node);
  return it != quarantine_.end() && !it->second.over;
}

const FabricToken& Supervisor::token_between(const Member& a, const Member& b) {
  const auto key = std::minmax(a.incarnation, b.incarnation);
  const auto [it, is_new] = tokens_.try_emplace({key.first, key.second});
  if (is_new) options_.random(it->second);
  return it->second;
}

Peer Supervisor::peer_of(const Member& member, const Member& peer) {
  return {peer.id, peer.incarnation, peer.inventory.fabric_address, token_between(member, peer)};
}

void Supervisor::on_unreachable(const Member& reporter, const PeerUnreachable& report,
                                TimePoint now, SupervisorActions& actions) {
  ++counters_.unreachable_peers;
  if (state_ == ClusterState::kStopping) return;  // peers leave one before the other
  const auto it = members_.find(report.peer);
  if (it == members_.end() || it->second.incarnation != report.incarnation) return;  // known
  const Member& peer = it->second;
  std::erase_if(broken_links_,
                [&](const auto& link) { return now - link.second.since >= kLinkMemory; });
  const auto lives = std::minmax(reporter.incarnation, peer.incarnation);
  const std::pair key(lives.first, lives.second);
  const auto takes_part = [&](NodeId node) {
    return served_by_.contains(node) || loading_.contains(node);
  };
  if (!takes_part(reporter.id) || !takes_part(peer.id)) {
    // Nobody needs that connection; the next version that does makes it anew.
    tokens_.erase(key);
    return;
  }
  BrokenLink& link = broken_links_[key];
  const std::string text = to_string(reporter.id) + " cannot reach " + to_string(peer.id) + ": " +
                           report.reason.substr(0, 1024);
  if (link.reported.empty()) {
    link.since = now;
    record("peer_unreachable", text, now, actions);
    tokens_.erase(key);
    actions.send(member_address(reporter), Connect{peer_of(reporter, peer)});
    actions.send(member_address(peer), Connect{peer_of(peer, reporter)});
  } else if (link.reported.contains(reporter.id)) {
    fence_one_of(reporter.id, peer.id, text, now, actions);
    return;
  }
  link.reported.insert(reporter.id);
}

/// The one that is cut off from more members goes, else the one whose loss costs less.
void Supervisor::fence_one_of(NodeId a, NodeId b, const std::string& reason, TimePoint now,
                              SupervisorActions& actions) {
  const auto cost = [&](NodeId node) {
    const Incarnation life = members_.at(node).incarnation;
    const auto broken = std::count_if(broken_links_.begin(), broken_links_.end(), [&](auto& link) {
      return link.first.first == life || link.first.second == life;
    });
    std::size_t shards = 0;
    if (active_)
      for (const auto& shard : active_->shards) shards += shard.device.node == node ? 1 : 0;
    return std::tuple(-broken, shards, pieces_on(node), -static_cast<std::int64_t>(node.value));
  };
  const NodeId fenced = cost(a) < cost(b) ? a : b;
  Quarantine& quarantine = quarantine_[fenced];
  quarantine.length = std::clamp<Duration>(quarantine.length * 2, kQuarantineMin, kQuarantineMax);
  quarantine.until = now + quarantine.length;
  quarantine.over = false;
  remove_member(fenced, reason, false, now, actions);
  consider(now, actions);
}

}  // namespace troupe
