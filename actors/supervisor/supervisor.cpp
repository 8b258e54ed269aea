#include "actors/supervisor/supervisor.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace troupe {
namespace {

constexpr std::uint32_t kHeldIdMax = 1u << 30;
constexpr std::uint64_t kDeviceBytesMax = 1ull << 50;
constexpr std::size_t kHostBytesMax = 255;
constexpr std::size_t kTextBytesMax = 4096;

bool printable(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

std::string list(const std::vector<Numerics>& families) {
  std::string text;
  for (const auto f : families) text += (text.empty() ? "" : ", ") + std::string(to_string(f));
  return text.empty() ? "none" : text;
}

std::string range(ProtocolRange r) {
  return std::to_string(r.oldest) + " to " + std::to_string(r.newest);
}

Status check_protocol(ProtocolRange theirs) {
  if (theirs.oldest <= kProtocol.newest && kProtocol.oldest <= theirs.newest) return {};
  return refused("It speaks the protocols " + range(theirs) + " and this head " + range(kProtocol) +
                 "; run the same version of troupe on both.");
}

Status check_devices(const std::vector<DeviceInventory>& devices) {
  if (devices.empty() || devices.size() > limits::kDevicesPerNodeMax) {
    return invalid_argument("It offers " + std::to_string(devices.size()) +
                            " devices; a worker must have 1 to " +
                            std::to_string(limits::kDevicesPerNodeMax) + ".");
  }
  for (const auto& d : devices) {
    if (d.kind != "cpu" && d.kind != "cuda") {
      return invalid_argument(
          "It offers a device that is neither cpu nor cuda; run the same "
          "version of troupe on both.");
    }
    if (d.memory_total == 0 || d.memory_total > kDeviceBytesMax) {
      return invalid_argument("It offers a device of " + std::to_string(d.memory_total) +
                              " bytes of memory, which cannot be; set --device-memory.");
    }
    if (d.threads == 0 || d.threads > limits::kThreadsMax) {
      return invalid_argument("It offers a device of " + std::to_string(d.threads) +
                              " threads, which cannot be; set --threads.");
    }
  }
  return {};
}

}  // namespace

std::string_view to_string(ClusterState state) {
  switch (state) {
    case ClusterState::kForming:
      return "forming";
    case ClusterState::kLoading:
      return "loading";
    case ClusterState::kReady:
      return "ready";
    case ClusterState::kDegraded:
      return "degraded";
    case ClusterState::kStopping:
      return "stopping";
  }
  return "unknown";
}

std::string_view to_string(MemberState state) {
  switch (state) {
    case MemberState::kJoining:
      return "joining";
    case MemberState::kReady:
      return "ready";
    case MemberState::kLost:
      return "lost";
  }
  return "unknown";
}

Supervisor::Supervisor(SupervisorOptions options)
    : options_(std::move(options)),
      numerics_(options_.engine.numerics),
      next_incarnation_(options_.incarnation.value + 1),
      next_node_(std::max(1u, options_.next_node)),
      retry_backoff_(limits::kLoadRetryMin) {
  message_ = waiting_message();
}

Address Supervisor::address() const {
  return {kHeadNode, options_.incarnation, {ActorKind::kSupervisor, 0}};
}
Address Supervisor::session_address(std::uint32_t session) const {
  return {kHeadNode, options_.incarnation, {ActorKind::kClient, session}};
}
Address Supervisor::member_address(const Member& member) {
  return {member.id, member.incarnation, {ActorKind::kNodeAgent, 0}};
}

void Supervisor::record(std::string kind, std::string text, TimePoint now,
                        SupervisorActions& actions) {
  const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(now - options_.started);
  ClusterEvent event{options_.started_unix_ms + since.count(), std::move(kind), std::move(text)};
  for (const auto& [number, session] : sessions_) {
    if (session.subscribed && !session.closing) {
      actions.send(session_address(number), ClusterNews{event});
    }
  }
  events_.push_back(event);
  if (events_.size() > limits::kClusterEventsMax) events_.pop_front();
  actions.events.push_back(std::move(event));
}

// --- Sessions -----------------------------------------------------------------------------------

void Supervisor::session_up(std::uint32_t session, std::string peer, TimePoint now,
                            SupervisorActions& actions) {
  Session& s = sessions_[session];
  s.peer = std::move(peer);
  s.opened = now;
  if (sessions_.size() > limits::kSessionsMax) {
    refuse_session(session,
                   resource_exhausted("The head has as many sessions as it may; try later."), now,
                   actions);
  } else {
    actions.send(session_address(session),
                 Greeting{kProtocol, options_.cluster_id, options_.version, options_.model_path,
                          options_.checkpoint_hash, numerics_});
  }
  wake(actions);
}

void Supervisor::session_down(std::uint32_t session, std::string_view reason, TimePoint now,
                              SupervisorActions& actions) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) return;
  const std::optional<NodeId> node = it->second.member;
  sessions_.erase(it);
  const auto member = node ? members_.find(*node) : members_.end();
  if (member != members_.end() && member->second.session == session) {
    remove_member(*node, "its connection went down: " + std::string(reason), false, now, actions);
    consider(now, actions);
  }
  wake(actions);
}

void Supervisor::close(std::uint32_t session, std::string reason, SupervisorActions& actions) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end() || it->second.closing) return;
  it->second.closing = true;
  actions.close_sessions.push_back({session, std::move(reason)});
}

void Supervisor::on(const Envelope& envelope, TimePoint now, SupervisorActions& actions) {
  assert(envelope.message);
  const Address& from = envelope.from;
  if (std::holds_alternative<Undeliverable>(*envelope.message)) {
    // Whoever it was for is lost by its session or its lease; nothing waits for the answer alone.
  } else if (from.node == kHeadNode) {
    if (from.incarnation != options_.incarnation || from.actor.kind != ActorKind::kClient) {
      refuse_message(envelope, "Only sessions speak to the head's Supervisor.", actions);
    } else {
      on_stranger(from.actor.index, envelope, now, actions);
    }
  } else {
    const auto it = members_.find(from.node);
    if (it != members_.end() && now - it->second.last_renew >= limits::kLease) {
      check_leases(now, actions);
    }
    const auto member = members_.find(from.node);
    if (member == members_.end() || member->second.incarnation != from.incarnation) {
      refuse_message(envelope, to_string(from) + " is no member of this cluster; join again.",
                     actions);
    } else {
      on_member(member->second, envelope, now, actions);
    }
  }
  wake(actions);
}

void Supervisor::on_stranger(std::uint32_t session, const Envelope& envelope, TimePoint now,
                             SupervisorActions& actions) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) {
    refuse_message(envelope, "That session is over; connect again.", actions);
    return;
  }
  Session& s = it->second;
  if (s.closing) return;
  if (s.client) {
    on_client(session, envelope, now, actions);
  } else if (s.member) {
    ++counters_.garbage;
    refuse_message(envelope, "A member speaks with its own address.", actions);
  } else if (const auto* join = std::get_if<Join>(envelope.message.get())) {
    on_join(session, *join, now, actions);
  } else if (const auto* hello = std::get_if<ClientHello>(envelope.message.get())) {
    if (Status status = check_protocol(hello->protocol); !status) {
      refuse_session(session, status.error(), now, actions);
      return;
    }
    s.client = true;
    actions.send(session_address(session), ClientWelcome{session});
  } else if (const auto* leave = std::get_if<Leave>(envelope.message.get())) {
    // A worker that found by itself that it does not belong here.
    ++counters_.refused_joins;
    record("refused",
           "A worker at " + s.peer + " did not join: " + leave->reason.substr(0, kTextBytesMax),
           now, actions);
    close(session, "it did not join", actions);
  } else {
    ++counters_.garbage;
    refuse_session(session, refused("The first message must be Join or ClientHello."), now,
                   actions);
  }
}

void Supervisor::on_client(std::uint32_t session, const Envelope& envelope, TimePoint now,
                           SupervisorActions& actions) {
  const Address to = session_address(session);
  if (const auto* query = std::get_if<StatusQuery>(envelope.message.get())) {
    assert(status_source_);
    actions.send(to, StatusReply{query->query, status_source_(now)});
  } else if (const auto* query = std::get_if<StopQuery>(envelope.message.get())) {
    StopReply reply{query->query, {options_.pid}};
    for (const auto& [id, member] : members_) {
      if (member.inventory.host == options_.host) reply.pids.push_back(member.inventory.pid);
    }
    actions.send(to, std::move(reply));
    stop("A client asked for it.", now, actions);
  } else if (std::holds_alternative<Subscribe>(*envelope.message)) {
    sessions_.at(session).subscribed = true;
  } else {
    refuse_message(envelope, "The Supervisor does not take that message from a client.", actions);
  }
}

void Supervisor::refuse_session(std::uint32_t session, const Error& error, TimePoint now,
                                SupervisorActions& actions) {
  ++counters_.refused_joins;
  actions.send(session_address(session), Refused{error.code, error.message});
  record("refused", "The peer at " + sessions_.at(session).peer + " was refused. " + error.message,
         now, actions);
  close(session, error.message, actions);
}

void Supervisor::refuse_message(const Envelope& envelope, std::string reason,
                                SupervisorActions& actions) {
  ++counters_.refused_messages;
  actions.send(envelope.from,
               Undeliverable{envelope.to, static_cast<std::uint32_t>(envelope.message->index()), 0,
                             refused(std::move(reason))});
}

// --- Members ------------------------------------------------------------------------------------

Status Supervisor::check_join(const Join& join) const {
  if (state_ == ClusterState::kStopping) return unavailable("The cluster is stopping.");
  if (Status s = check_protocol(join.protocol); !s) return s;
  if (join.role != "worker") {
    return invalid_argument(
        "It wants a role that this head does not know; the only one is worker.");
  }
  if (join.host.empty() || join.host.size() > kHostBytesMax || !printable(join.host) ||
      join.pid <= 0 || !printable(join.version) || join.version.size() > kHostBytesMax ||
      join.fabric_address.empty() || join.fabric_address.size() > kTextBytesMax ||
      join.fabric_description.size() > kTextBytesMax) {
    return invalid_argument(
        "Its host name, process id, version or bulk address cannot be; run the "
        "same version of troupe on both.");
  }
  if (join.checkpoint_hash != options_.checkpoint_hash) {
    return refused("Its checkpoint is another one than the head's at " + options_.model_path +
                   "; give it the same files, or --model with the folder that has them.");
  }
  if (Status s = check_devices(join.devices); !s) return s;
  const auto has = [&](Numerics n) {
    return std::find(join.numerics.begin(), join.numerics.end(), n) != join.numerics.end();
  };
  if (numerics_ && !has(*numerics_)) {
    return refused("Its processor cannot run the cluster's numerics " +
                   std::string(to_string(*numerics_)) + " (it has " + list(join.numerics) +
                   "); start the head with --numerics that every worker has.");
  }
  if (!numerics_) {
    bool meets = !join.numerics.empty();
    if (!members_.empty()) {
      meets = std::any_of(join.numerics.begin(), join.numerics.end(), [&](Numerics n) {
        return std::all_of(members_.begin(), members_.end(), [&](const auto& m) {
          const auto& theirs = m.second.inventory.numerics;
          return std::find(theirs.begin(), theirs.end(), n) != theirs.end();
        });
      });
    }
    if (!meets) {
      return refused("It has no numerics in common with the other workers (it has " +
                     list(join.numerics) + "); run the same version of troupe everywhere.");
    }
  }
  if (members_.size() >= limits::kNodesMax) {
    return resource_exhausted("The cluster has " + std::to_string(limits::kNodesMax) +
                              " workers, as many as it may.");
  }
  return {};
}

std::optional<Numerics> Supervisor::common_numerics() const {
  std::optional<Numerics> fastest;
  for (int i = 0; i < kNumericsCount; ++i) {
    const auto family = static_cast<Numerics>(i);  // slowest first
    const bool common = std::all_of(members_.begin(), members_.end(), [&](const auto& m) {
      const auto& theirs = m.second.inventory.numerics;
      return std::find(theirs.begin(), theirs.end(), family) != theirs.end();
    });
    if (common && !members_.empty()) fastest = family;
  }
  return fastest;
}

NodeId Supervisor::choose_id(const Join& join, TimePoint now, SupervisorActions& actions) {
  const NodeId held = join.held_id;
  if (held.value != 0 && held.value < kHeldIdMax && join.held_cluster == options_.cluster_id) {
    const auto it = members_.find(held);
    const bool same_process = it != members_.end() && it->second.inventory.host == join.host &&
                              it->second.inventory.pid == join.pid;
    if (same_process) {
      // Its machine ended its old life before it sought the head again.
      remove_member(held, "it came back with a new connection", false, now, actions);
    }
    if (it == members_.end() || same_process) {
      next_node_ = std::max(next_node_, held.value + 1);
      return held;
    }
  }
  while (members_.contains(NodeId{next_node_})) ++next_node_;
  return NodeId{next_node_++};
}

void Supervisor::on_join(std::uint32_t session, const Join& join, TimePoint now,
                         SupervisorActions& actions) {
  if (Status s = check_join(join); !s) {
    refuse_session(session, s.error(), now, actions);
    return;
  }
  const std::uint32_t next_before = next_node_;
  const NodeId id = choose_id(join, now, actions);
  if (next_node_ != next_before) actions.keep_next_node = next_node_;
  std::erase_if(gone_, [&](const Member& m) { return m.id == id; });
  Member& member = members_[id];
  member.id = id;
  member.incarnation = Incarnation{next_incarnation_++};
  member.session = session;
  member.inventory = join;
  member.joined = now;
  member.last_renew = now;
  member.devices.resize(join.devices.size());
  sessions_.at(session).member = id;
  ++counters_.joined;
  actions.bind_sessions.push_back({session, id, member.incarnation});
  const auto lease = std::chrono::duration_cast<std::chrono::milliseconds>(limits::kLease);
  actions.send(member_address(member),
               Welcome{id, member.incarnation, static_cast<std::uint32_t>(lease.count())});
  record("node_joined",
         to_string(id) + " joined: process " + std::to_string(join.pid) + " on " + join.host +
             " with " + std::to_string(join.devices.size()) +
             (join.devices.size() == 1 ? " device." : " devices."),
         now, actions);
  consider(now, actions);
}

void Supervisor::on_member(Member& member, const Envelope& envelope, TimePoint now,
                           SupervisorActions& actions) {
  const Message& message = *envelope.message;
  const NodeId id = member.id;
  if (const auto* renew = std::get_if<Renew>(&message)) {
    on_renew(member, *renew, now, actions);
  } else if (const auto* progress = std::get_if<LoadProgress>(&message)) {
    on_load_progress(member, *progress, now);
  } else if (const auto* loaded = std::get_if<Loaded>(&message)) {
    on_loaded(member, *loaded, now, actions);
  } else if (const auto* failed = std::get_if<LoadFailed>(&message)) {
    on_load_failed(member, *failed, now, actions);
  } else if (const auto* leave = std::get_if<Leave>(&message)) {
    remove_member(id, leave->reason.substr(0, kTextBytesMax), true, now, actions);
    consider(now, actions);
  } else if (const auto* peer = std::get_if<PeerUnreachable>(&message)) {
    ++counters_.unreachable_peers;
    if (state_ == ClusterState::kStopping) return;  // peers leave one before the other
    // The next load gives that pair a new token, so that both make their connection anew.
    const auto pair = std::minmax(member.incarnation, peer->incarnation);
    tokens_.erase({pair.first, pair.second});
    record("peer_unreachable",
           to_string(id) + " cannot reach " + to_string(peer->peer) + ": " +
               peer->reason.substr(0, kTextBytesMax),
           now, actions);
    if (!broken_link_)
      broken_link_ = {id,
                      peer->peer,
                      member.incarnation,
                      peer->incarnation,
                      peer->reason.substr(0, kTextBytesMax),
                      now + limits::kBrokenLinkPatience};
  } else {
    ++counters_.garbage;
    refuse_message(envelope, "The Supervisor does not take that message from a worker.", actions);
  }
}

void Supervisor::on_renew(Member& member, const Renew& renew, TimePoint now,
                          SupervisorActions& actions) {
  if (renew.sequence <= member.last_sequence) {
    ++counters_.garbage;
    return;
  }
  member.last_sequence = renew.sequence;
  member.last_renew = now;
  actions.send(member_address(member), Renewed{renew.sequence});
  const bool sane = renew.devices.size() == member.devices.size() &&
                    std::all_of(renew.devices.begin(), renew.devices.end(), [](const auto& d) {
                      return std::isfinite(d.utilization) && d.utilization >= 0 &&
                             d.memory_used <= kDeviceBytesMax;
                    });
  if (!sane) {
    ++counters_.garbage;
    return;
  }
  member.devices = renew.devices;
  for (auto& d : member.devices) d.utilization = std::min(d.utilization, 1.0f);
  member.replicas.clear();
  for (const auto& report : renew.replicas) {
    const bool its_own = placement_ && report.replica < placement_->replicas.size() &&
                         placement_->replicas[report.replica].node == member.id;
    if (its_own && member.replicas.size() < placement_->replicas.size()) {
      member.replicas.push_back(report);
    }
  }
}

void Supervisor::remove_member(NodeId id, const std::string& reason, bool orderly, TimePoint now,
                               SupervisorActions& actions) {
  const auto it = members_.find(id);
  assert(it != members_.end());
  Member member = std::move(it->second);
  members_.erase(it);
  member.state = MemberState::kLost;
  member.lost_reason = reason;
  close(member.session, reason, actions);
  std::erase_if(tokens_, [&](const auto& entry) {
    return entry.first.first == member.incarnation || entry.first.second == member.incarnation;
  });
  if (state_ == ClusterState::kStopping) {
    record("node_left", to_string(id) + " left, as it was told.", now, actions);
  } else if (orderly) {
    record("node_left", to_string(id) + " left: " + reason, now, actions);
  } else {
    ++counters_.lost;
    record("node_lost", to_string(id) + " is lost: " + reason, now, actions);
    gone_.push_back(std::move(member));
    if (gone_.size() > limits::kLostNodesMax) gone_.pop_front();
  }
  if (!placement_lives() || !uses(id)) return;
  lost_parts_ = parts_on(id);
  std::string parts;
  for (const auto& part : lost_parts_) parts += (parts.empty() ? "" : ", ") + part;
  const Error error = unavailable(to_string(id) + (orderly ? " left" : " is lost") + " (" + reason +
                                  ") and with it " + parts + ".");
  abandon(error, now, actions);
}

// --- Time ---------------------------------------------------------------------------------------

void Supervisor::check_leases(TimePoint now, SupervisorActions& actions) {
  std::vector<NodeId> late;
  for (const auto& [id, member] : members_) {
    if (now - member.last_renew >= limits::kLease) late.push_back(id);
  }
  for (const NodeId id : late) {
    remove_member(id, "it did not renew its lease, so it hangs or is cut off", false, now, actions);
  }
  if (!late.empty()) consider(now, actions);
}

void Supervisor::check_strangers(TimePoint now, SupervisorActions& actions) {
  for (const auto& [number, session] : sessions_) {
    if (session.client || session.member || session.closing) continue;
    if (now - session.opened < limits::kHandshakeDeadline) continue;
    close(number, "It did not say what it wants in time.", actions);
  }
}

void Supervisor::on_wake(TimePoint now, SupervisorActions& actions) {
  check_leases(now, actions);
  check_strangers(now, actions);
  check_loads(now, actions);
  check_broken_link(now, actions);
  if (retry_at_ && now >= *retry_at_) {
    retry_at_.reset();
    consider(now, actions);
  }
  if (stop_deadline_) finish_stop(now, actions);
  wake(actions);
}

void Supervisor::wake(SupervisorActions& actions) const {
  for (const auto& [id, member] : members_) {
    actions.wake_at(member.last_renew + limits::kLease);
    if (state_ == ClusterState::kLoading && uses(id) && !member.loaded) {
      actions.wake_at(member.load_deadline);
    }
  }
  for (const auto& [number, session] : sessions_) {
    if (!session.client && !session.member && !session.closing) {
      actions.wake_at(session.opened + limits::kHandshakeDeadline);
    }
  }
  if (broken_link_) actions.wake_at(broken_link_->due);
  if (retry_at_) actions.wake_at(*retry_at_);
  if (stop_deadline_) actions.wake_at(*stop_deadline_);
}

}  // namespace troupe
