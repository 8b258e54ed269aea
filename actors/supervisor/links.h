#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "actors/supervisor/membership.h"

namespace troupe {

/// Pairs of members: the token of each pair's connection, pairs that reach the head but not each
/// other, and nodes that were fenced for that and take no part for a while.
///
///     whole ── a side reports ──► broken: both connect again ── kLinkMemory passes ──► whole
///                                   └── the same side reports again, or either that nobody came
///                                       this time ──► one of them is fenced
///
/// Where no connection came about, the other one goes when they connect again: a firewall, or a
/// translation of addresses, often lets one way pass. Who says that it lies at its own end has said
/// enough.
class Links {
 public:
  /// `peer` as `member` is to see it. The pair's token is drawn at first and after each break.
  Peer tell(const Member& member, const Member& peer, const SupervisorOptions& options);
  /// Whether `member` has been told of `peer` as it is now.
  bool told(const Member& member, const Member& peer) const;

  enum class Report : std::uint8_t {
    kConnectAgain,  ///< the first one: both are to connect with a new token
    kKnown,         ///< the other side of the same break
    kFence,         ///< the new connection broke too, or never came, or cannot come
  };
  Report report(const Member& reporter, const Member& peer, const PeerUnreachable& said,
                TimePoint now);
  /// What was said of the break first.
  std::string first_reason(const Member& a, const Member& b) const;
  /// Nobody needs that connection: the next version that does makes it with a new token.
  void drop(const Member& a, const Member& b);
  /// Broken links of that member.
  std::int64_t broken(const Member& member) const;
  /// That life is over.
  void forget(Incarnation life);

  /// The node takes no part for a while, longer each time; how long.
  Duration quarantine(NodeId node, const std::string& why, TimePoint now);
  bool quarantined(NodeId node) const { return !why_quarantined(node).empty(); }
  std::string why_quarantined(NodeId node) const;  ///< empty: it is not
  /// True if a node may take part again.
  bool end_quarantines(TimePoint now);

  void arrange_wake(SupervisorEffects& effects) const;
  std::string violation(const Membership& members) const;

 private:
  using Lives = std::pair<Incarnation, Incarnation>;  ///< the older one first
  static Lives lives_of(const Member& a, const Member& b);

  /// A pair that one of them has been told of.
  struct Known {
    FabricToken token{};
    std::set<NodeId> told;
  };
  /// A pair whose connection broke, and that was told to connect again.
  struct BrokenLink {
    std::set<NodeId> reported;  ///< who has said so since then
    TimePoint since{};
    std::string reason;  ///< of the first report
  };
  struct Quarantine {
    TimePoint until{};
    Duration length{};
    std::string why;  ///< empty: it is over, and only remembered in case it happens again
  };

  std::map<Lives, Known> known_;
  std::map<Lives, BrokenLink> broken_;
  std::set<Lives> reversed_;  ///< the one with the higher id goes to the other
  std::map<NodeId, Quarantine> quarantines_;
};

}  // namespace troupe
