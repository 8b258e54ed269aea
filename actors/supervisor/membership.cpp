#include "actors/supervisor/membership.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "actors/supervisor/check_inventory.h"
#include "actors/supervisor/times.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

bool has(const Join& join, Numerics family) {
  return std::find(join.numerics.begin(), join.numerics.end(), family) != join.numerics.end();
}

bool can_be(const DeviceReport& report) {
  return std::isfinite(report.utilization) && report.utilization >= 0 &&
         report.memory_used <= kDeviceBytesMax;
}

}  // namespace

std::string_view to_string(MemberState state) {
  switch (state) {
    case MemberState::kJoining:
      return "joining";
    case MemberState::kReady:
      return "ready";
    case MemberState::kDraining:
      return "draining";
    case MemberState::kLost:
      return "lost";
  }
  return "unknown";
}

Membership::Membership(const SupervisorOptions& options)
    : next_incarnation_(options.incarnation.value + 1),
      next_node_(std::max(1u, options.next_node)),
      numerics_(options.engine.numerics ? options.engine.numerics : options.known.numerics) {}

// --- Joining ------------------------------------------------------------------------------------

Status Membership::check(const Join& join, const SupervisorOptions& options) const {
  if (Status s = check_protocol(join.protocol); !s) return s;
  if (join.checkpoint_hash != options.checkpoint_hash) {
    return refused("Its checkpoint is another one than the head's at " + options.model_path +
                   "; give it the same files, or --model with the folder that has them.");
  }
  if (Status s = check_inventory(join); !s) return s;
  if (Status s = check_numerics(join); !s) return s;
  if (members_.size() >= limits::kNodesMax) {
    return resource_exhausted("The cluster has " + std::to_string(limits::kNodesMax) +
                              " workers, as many as it may.");
  }
  return {};
}

Status Membership::check_numerics(const Join& join) const {
  if (numerics_) {
    if (has(join, *numerics_)) return check_tensor_cores(join);
    return refused("Its processor cannot run the cluster's numerics " +
                   std::string(to_string(*numerics_)) + " (it has " + in_words(join.numerics) +
                   "); start the head with --numerics that every worker has.");
  }
  const auto exact = exact_numerics();
  const bool meets = std::any_of(exact.begin(), exact.end(), [&](Numerics n) {
    return has(join, n) && std::all_of(members_.begin(), members_.end(),
                                       [&](const auto& m) { return has(m.second.inventory, n); });
  });
  if (meets) return {};
  return refused("It has no numerics in common with the other workers (it has " +
                 in_words(join.numerics) + "); run the same version of troupe everywhere.");
}

/// Those of another generation add up in another order.
Status Membership::check_tensor_cores(const Join& join) const {
  if (!by_tensor_cores(*numerics_)) return {};
  const std::string& all =
      architecture_.empty() ? join.devices.front().architecture : architecture_;
  for (const DeviceInventory& device : join.devices)
    if (device.architecture != all)
      return refused("Its " + (device.name.empty() ? device.kind : device.name) + " has " +
                     (device.architecture.empty() ? "no tensor cores"
                                                  : "tensor cores of " + device.architecture) +
                     ", and the cluster's numerics " + std::string(to_string(*numerics_)) +
                     " are computed by those of " + all +
                     ", which add up in another order; start a head of its own for it, or the "
                     "head with --numerics bf16, which all GPUs compute alike.");
  return {};
}

std::optional<Numerics> Membership::common_numerics() const {
  std::optional<Numerics> wanted;
  for (const Numerics n : exact_numerics()) {  // the least wanted first
    const bool common = std::all_of(members_.begin(), members_.end(),
                                    [&](const auto& m) { return has(m.second.inventory, n); });
    if (common && !members_.empty()) wanted = n;
  }
  return wanted;
}

void Membership::pick_numerics() {
  assert(!numerics_);
  numerics_ = common_numerics();
  assert(numerics_);  // check() lets nobody in who has none in common with the others
}

std::optional<NodeId> Membership::former_life(const Join& join,
                                              const std::string& cluster_id) const {
  if (join.held_cluster != cluster_id) return std::nullopt;
  const Member* member = find(join.held_id);
  if (!member || member->inventory.host != join.host || member->inventory.pid != join.pid)
    return std::nullopt;
  return join.held_id;
}

NodeId Membership::choose_id(const Join& join, const std::string& cluster_id) {
  const NodeId held = join.held_id;
  if (held.value != 0 && held.value < kHeldIdMax && join.held_cluster == cluster_id &&
      !members_.contains(held)) {
    next_node_ = std::max(next_node_, held.value + 1);
    return held;
  }
  while (members_.contains(NodeId{next_node_})) ++next_node_;
  return NodeId{next_node_++};
}

Member& Membership::add(NodeId id, std::uint32_t session, const Join& join, TimePoint now,
                        std::optional<Incarnation> goes_on) {
  std::erase_if(gone_, [&](const Member& m) { return m.id == id; });
  Member& member = members_[id];
  member.id = id;
  member.incarnation = goes_on ? *goes_on : Incarnation{next_incarnation_++};
  member.session = session;
  member.inventory = join;
  member.inventory.held_role.reset();
  member.last_renew = now;
  member.devices.resize(join.devices.size());
  if (numerics_ && by_tensor_cores(*numerics_)) architecture_ = join.devices.front().architecture;
  if (const auto doubt = doubts_.find(id); doubt != doubts_.end() && now < doubt->second.until) {
    member.closed_reason = doubt->second.why;
    member.closed_until = member.needed_from = doubt->second.until;
  }
  return member;
}

// --- Being a member -----------------------------------------------------------------------------

Member* Membership::find(NodeId id) {
  const auto it = members_.find(id);
  return it == members_.end() ? nullptr : &it->second;
}
const Member* Membership::find(NodeId id) const {
  const auto it = members_.find(id);
  return it == members_.end() ? nullptr : &it->second;
}

std::vector<NodeId> Membership::late(TimePoint now) const {
  std::vector<NodeId> late;
  for (const auto& [id, member] : members_)
    if (now - member.last_renew >= limits::kLease) late.push_back(id);
  return late;
}

void Membership::renew_all(TimePoint now) {
  for (auto& [id, member] : members_) {
    member.last_renew = now;
    member.unheard = {};
  }
}

bool Membership::renew(Member& member, const Renew& renew, TimePoint now) {
  if (renew.sequence <= member.last_sequence) return false;
  member.last_sequence = renew.sequence;
  member.last_renew = now;
  Member::Unheard& unheard = member.unheard;
  if (unheard.count == 0 || renew.heard >= unheard.first) unheard = {renew.sequence, now, 0};
  ++unheard.count;
  member.hears = member.hears || renew.heard > 0;
  return true;
}

bool Membership::deaf(const Member& member, TimePoint now) {
  return member.hears && member.unheard.count > limits::kLease / limits::kRenewEvery &&
         now - member.unheard.since >= limits::kLease;
}

Membership::ReportResult Membership::take_report(Member& member,
                                                 const std::vector<DeviceReport>& devices) {
  if (devices.size() != member.devices.size() ||
      !std::all_of(devices.begin(), devices.end(), can_be))
    return ReportResult::kLies;
  bool failed = false;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    failed = failed || (member.devices[i].failed.empty() && !devices[i].failed.empty());
    speeds_.add({member.id, static_cast<std::uint32_t>(i)}, devices[i].probe_us);
  }
  member.devices = devices;
  for (auto& d : member.devices) d.utilization = std::min(d.utilization, 1.0f);
  return failed ? ReportResult::kDeviceFailed : ReportResult::kTaken;
}

void Membership::close(Member& member, const std::string& why, bool passing, TimePoint now) {
  const std::uint32_t doubled = 1u << std::min(member.failed_loads++, 16u);
  member.closed_reason = why;
  member.closed_until = now + std::min<Duration>(kClosedMin * doubled, kClosedMax);
  member.needed_from =
      now + (passing ? std::min<Duration>(limits::kLoadRetryMin * doubled, limits::kLoadRetryMax)
                     : Duration(kClosedMin));
}

bool Membership::reopen(TimePoint now) {
  bool any = false;
  for (auto& [id, member] : members_) {
    if (member.closed_reason.empty() || now < member.closed_until) continue;
    member.closed_reason.clear();
    any = true;
  }
  return any;
}

void Membership::send_all(MessagePtr message, SupervisorEffects& effects) const {
  for (const auto& [id, member] : members_) effects.send(member.agent(), message);
}

// --- Leaving ------------------------------------------------------------------------------------

Member Membership::remove(NodeId id) {
  auto node = members_.extract(id);
  assert(!node.empty());
  speeds_.forget(id);
  node.mapped().state = MemberState::kLost;
  return std::move(node.mapped());
}

void Membership::doubt(const Member& member, const std::string& why, TimePoint now) {
  Doubt& doubt = doubts_[member.id];
  doubt.why = why;
  if (++doubt.times > 1)
    doubt.until =
        now + std::min<Duration>(kDoubtMin * (1u << std::min(doubt.times - 2, 16u)), kDoubtMax);
  if (doubts_.size() > limits::kNodesMax) doubts_.erase(doubts_.begin());
}

void Membership::remember(Member lost) {
  gone_.push_back(std::move(lost));
  if (gone_.size() > limits::kLostNodesMax) gone_.pop_front();
}

// --- What they have -----------------------------------------------------------------------------

std::vector<PlacementDevice> Membership::devices() const {
  std::vector<PlacementDevice> devices;
  for (const auto& [id, member] : members_) {
    for (std::size_t i = 0; i < member.inventory.devices.size(); ++i) {
      if (!member.devices[i].failed.empty()) continue;
      const auto& device = member.inventory.devices[i];
      devices.push_back({{id, static_cast<std::uint32_t>(i)}, device.kind, device.memory_total});
    }
  }
  return devices;
}

void Membership::arrange_wake(TimePoint now, SupervisorEffects& effects) const {
  for (const auto& [id, member] : members_) {
    effects.wake_at(member.last_renew + limits::kLease);
    if (member.closed_reason.empty()) continue;
    effects.wake_at(now < member.needed_from ? member.needed_from : member.closed_until);
  }
}

std::string Membership::violation() const {
  if (members_.size() > limits::kNodesMax) return "There are more members than there may be.";
  if (gone_.size() > limits::kLostNodesMax) return "Too many lost nodes are remembered.";
  for (const auto& [id, member] : members_) {
    const std::string name = to_string(id);
    if (member.id != id) return name + " is filed under another id.";
    if (member.incarnation.value >= next_incarnation_) return name + " has a life not yet given.";
    if (member.state == MemberState::kLost) return name + " is lost and a member.";
    if (member.devices.size() != member.inventory.devices.size())
      return name + " has reports of devices that it does not have.";
    if (numerics_ && !has(member.inventory, *numerics_))
      return name + " cannot compute with the cluster's numerics.";
  }
  for (const auto& device : speeds_.slow())
    if (!members_.contains(device.node)) return to_string(device) + " is slow and no member's.";
  return speeds_.violation();
}

}  // namespace troupe
