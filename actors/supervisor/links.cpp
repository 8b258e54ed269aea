#include "actors/supervisor/links.h"

#include <algorithm>
#include <vector>

#include "actors/supervisor/times.h"

namespace troupe {

Links::Lives Links::lives_of(const Member& a, const Member& b) {
  return std::minmax(a.incarnation, b.incarnation);
}

Peer Links::tell(const Member& member, const Member& peer, const SupervisorOptions& options) {
  const auto [it, is_new] = known_.try_emplace(lives_of(member, peer));
  Known& pair = it->second;
  if (is_new) options.random(pair.token);
  pair.told.insert(member.id);
  return {peer.id,    peer.incarnation,    peer.inventory.fabric_address,
          pair.token, peer.inventory.nccl, reversed_.contains(lives_of(member, peer))};
}

bool Links::told(const Member& member, const Member& peer) const {
  const auto it = known_.find(lives_of(member, peer));
  return it != known_.end() && it->second.told.contains(member.id);
}

Links::Report Links::report(const Member& reporter, const Member& peer, const PeerUnreachable& said,
                            TimePoint now) {
  std::erase_if(broken_, [&](const auto& link) { return now - link.second.since >= kLinkMemory; });
  const auto [it, is_new] = broken_.try_emplace(lives_of(reporter, peer));
  BrokenLink& link = it->second;
  if (is_new) {
    link.since = now;
    link.reason = said.reason;
    known_.erase(it->first);
    if (said.fault == LinkFault::kNobody && reversed_.erase(it->first) == 0)
      reversed_.insert(it->first);
  }
  if (said.fault == LinkFault::kOwnEnd) {
    link.reported.insert(reporter.id);
    return Report::kFence;
  }
  const bool again = !link.reported.insert(reporter.id).second;
  const bool next = said.fault == LinkFault::kNobody && now - link.since >= kSameAttempt;
  if (again || next) return Report::kFence;
  return is_new ? Report::kConnectAgain : Report::kKnown;
}

std::string Links::first_reason(const Member& a, const Member& b) const {
  const auto it = broken_.find(lives_of(a, b));
  return it == broken_.end() ? "" : it->second.reason;
}

void Links::drop(const Member& a, const Member& b) { known_.erase(lives_of(a, b)); }

std::int64_t Links::broken(const Member& member) const {
  return std::count_if(broken_.begin(), broken_.end(), [&](const auto& link) {
    return link.first.first == member.incarnation || link.first.second == member.incarnation;
  });
}

void Links::forget(Incarnation life) {
  const auto is_its = [&](const auto& entry) {
    return entry.first.first == life || entry.first.second == life;
  };
  std::erase_if(known_, is_its);
  std::erase_if(broken_, is_its);
  std::erase_if(reversed_, [&](const Lives& l) { return l.first == life || l.second == life; });
}

Duration Links::quarantine(NodeId node, const std::string& why, TimePoint now) {
  Quarantine& quarantine = quarantines_[node];
  quarantine.length = std::clamp<Duration>(quarantine.length * 2, kQuarantineMin, kQuarantineMax);
  quarantine.until = now + quarantine.length;
  quarantine.why = why;
  return quarantine.length;
}

std::string Links::why_quarantined(NodeId node) const {
  const auto it = quarantines_.find(node);
  return it == quarantines_.end() ? "" : it->second.why;
}

bool Links::end_quarantines(TimePoint now) {
  bool any = false;
  for (auto& [node, quarantine] : quarantines_) {
    if (quarantine.why.empty() || now < quarantine.until) continue;
    quarantine.why.clear();
    any = true;
  }
  std::erase_if(quarantines_,
                [&](const auto& entry) { return now >= entry.second.until + kQuarantineForget; });
  return any;
}

void Links::arrange_wake(SupervisorEffects& effects) const {
  for (const auto& [node, quarantine] : quarantines_)
    if (!quarantine.why.empty()) effects.wake_at(quarantine.until);
}

std::string Links::violation(const Membership& members) const {
  std::vector<Incarnation> lives;
  for (const auto& [id, member] : members.all()) lives.push_back(member.incarnation);
  std::sort(lives.begin(), lives.end());
  const auto lives_on = [&](Incarnation life) {
    return std::binary_search(lives.begin(), lives.end(), life);
  };
  for (const auto& [pair, known] : known_) {
    if (!lives_on(pair.first) || !lives_on(pair.second))
      return "A pair has a token though one of them is no member.";
    if (known.told.empty()) return "A pair has a token that nobody was told.";
  }
  for (const auto& [pair, link] : broken_) {
    if (!lives_on(pair.first) || !lives_on(pair.second))
      return "A link counts as broken though one of its ends is no member.";
    if (link.reported.empty()) return "A link counts as broken, and nobody reported it.";
  }
  for (const Lives& pair : reversed_)
    if (!lives_on(pair.first) || !lives_on(pair.second))
      return "A pair has a direction though one of them is no member.";
  return {};
}

}  // namespace troupe
