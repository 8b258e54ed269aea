#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/supervisor/options.h"
#include "actors/supervisor/slow_devices.h"
#include "actors/supervisor/supervisor_effects.h"
#include "model/placement/plan_placement.h"

namespace troupe {

/// A worker may come back with an id below.
inline constexpr std::uint32_t kHeldIdMax = 1u << 30;

enum class MemberState : std::uint8_t { kJoining, kReady, kDraining, kLost };
std::string_view to_string(MemberState state);

/// One life of a worker in the cluster.
struct Member {
  NodeId id;
  Incarnation incarnation;
  std::uint32_t session = 0;
  std::string certificate;  ///< the name of the one that its machine has shown
  Join inventory;
  MemberState state = MemberState::kJoining;
  TimePoint last_renew{};
  std::uint64_t last_sequence = 0;  ///< of its Renew
  /// Its Renews that were answered since one that it did hear.
  struct Unheard {
    std::uint64_t first = 0;  ///< of them
    TimePoint since{};
    std::uint32_t count = 0;
  } unheard;
  bool hears = false;  ///< it has said so; a worker of an older version never does
  std::vector<DeviceReport> devices;
  std::vector<ReplicaReport> replicas;
  ProofReport proofs;
  std::string lost_reason;
  /// Why it takes nothing new: it could not load its part, or failed a proof. Until then.
  std::string closed_reason;
  TimePoint closed_until{};
  TimePoint needed_from{};  ///< from then on it takes something all the same where others cannot
  std::uint32_t failed_loads = 0;  ///< in a row
  bool told_to_end = false;        ///< drained
  // Of the newest version that it was to load, in bytes.
  std::uint64_t load_done = 0;
  std::uint64_t load_total = 0;

  Ref<NodeAgentInbox> agent() const { return {id, incarnation}; }
};

/// Who is in the cluster: ids, lives, leases, what members report of themselves.
class Membership {
 public:
  explicit Membership(const SupervisorOptions& options);

  // --- Joining
  /// Why that worker may not join.
  Status check(const Join& join, const SupervisorOptions& options) const;
  /// The member that the same process was before it came back.
  std::optional<NodeId> former_life(const Join& join, const std::string& cluster_id) const;
  /// The id that it held, unless a member has it; else a new one.
  NodeId choose_id(const Join& join, const std::string& cluster_id);
  std::uint32_t next_node() const { return next_node_; }
  /// `goes_on`: a life of an earlier head, if it is not to be a new one.
  Member& add(NodeId id, std::uint32_t session, const Join& join, TimePoint now,
              std::optional<Incarnation> goes_on = {});

  // --- Being a member
  const std::map<NodeId, Member>& all() const { return members_; }
  /// Null if there is none.
  Member* find(NodeId id);
  const Member* find(NodeId id) const;
  Member& at(NodeId id) { return members_.at(id); }
  const Member& at(NodeId id) const { return members_.at(id); }
  bool empty() const { return members_.empty(); }
  std::vector<NodeId> late(TimePoint now) const;  ///< whose lease has ended
  /// All leases begin again: nobody could renew.
  void renew_all(TimePoint now);
  /// Renews the lease. False if the sequence is an old one.
  bool renew(Member& member, const Renew& renew, TimePoint now);
  /// It is heard, but hears nothing: a way that is cut on one side only. Both time and Renews have
  /// to pass, as what waited while either stood still comes all at once.
  static bool deaf(const Member& member, TimePoint now);
  enum class ReportResult : std::uint8_t { kTaken, kDeviceFailed, kLies };
  /// Takes what a member reports of its devices.
  ReportResult take_report(Member& member, const std::vector<DeviceReport>& devices);
  /// It could not load its part, and takes nothing new for a while. `passing`: it may be able to
  /// soon.
  void close(Member& member, const std::string& why, bool passing, TimePoint now);
  /// Members that may take something new again; true if there were any.
  bool reopen(TimePoint now);
  /// One message to all.
  void send_all(MessagePtr message, SupervisorEffects& effects) const;

  // --- Leaving
  Member remove(NodeId id);
  /// It failed a proof: the same process, or one that takes its place, is given nothing new for a
  /// while, from the second time on.
  void doubt(const Member& member, const std::string& why, TimePoint now);
  /// Keeps it to be seen in the status.
  void remember(Member lost);
  const std::deque<Member>& gone() const { return gone_; }  ///< newest last

  // --- What they have
  std::vector<PlacementDevice> devices() const;  ///< without failed ones
  /// The kernel family that all compute with, once it is picked; then it never changes.
  std::optional<Numerics> numerics() const { return numerics_; }
  void pick_numerics();
  SlowDevices& speeds() { return speeds_; }
  const SlowDevices& speeds() const { return speeds_; }

  void arrange_wake(TimePoint now, SupervisorEffects& effects) const;
  std::string violation() const;

 private:
  struct Doubt {
    std::string why;
    std::uint32_t times = 0;
    TimePoint until{};
  };
  std::optional<Numerics> common_numerics() const;
  Status check_numerics(const Join& join) const;
  Status check_tensor_cores(const Join& join) const;

  std::map<NodeId, Member> members_;
  std::deque<Member> gone_;
  std::uint64_t next_incarnation_;
  std::uint32_t next_node_;
  std::optional<Numerics> numerics_;
  std::string architecture_;  ///< of all tensor cores, where these are what computes
  SlowDevices speeds_;
  std::map<NodeId, Doubt> doubts_;
};

}  // namespace troupe
