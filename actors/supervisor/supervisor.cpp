#include "actors/supervisor/supervisor.h"

#include <algorithm>
#include <cassert>

#include "actors/supervisor/check_inventory.h"

namespace troupe {
namespace {

constexpr std::size_t kTextBytesMax = 4096;

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
    case MemberState::kDraining:
      return "draining";
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
  wake(now, actions);
}

void Supervisor::session_down(std::uint32_t session, std::string_view reason, TimePoint now,
                              SupervisorActions& actions) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) return;
  const std::optional<NodeId> node = it->second.member;
  sessions_.erase(it);
  std::erase_if(operations_, [&](const auto& operation) { return operation.session == session; });
  const auto member = node ? members_.find(*node) : members_.end();
  if (member != members_.end() && member->second.session == session) {
    remove_member(*node, "its connection went down: " + std::string(reason), false, now, actions);
    consider(now, actions);
  }
  wake(now, actions);
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
  wake(now, actions);
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
  } else if (const auto* query = std::get_if<DrainQuery>(envelope.message.get())) {
    on_drain(session, *query, now, actions);
  } else if (const auto* query = std::get_if<RebalanceQuery>(envelope.message.get())) {
    on_rebalance(session, *query, now, actions);
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

// --- Time ---------------------------------------------------------------------------------------

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
  for (auto& [node, quarantine] : quarantine_) {
    if (quarantine.over || now < quarantine.until) continue;
    quarantine.over = true;
    change_goal(now);
  }
  std::erase_if(quarantine_,
                [&](const auto& entry) { return now >= entry.second.until + kQuarantineForget; });
  consider(now, actions);
  wake(now, actions);
}

void Supervisor::wake(TimePoint now, SupervisorActions& actions) const {
  for (const auto& [id, member] : members_) {
    actions.wake_at(member.last_renew + limits::kLease);
    if (pending_ && loading_.contains(id) && !member.loaded) actions.wake_at(member.load_deadline);
    if (!member.closed_reason.empty()) actions.wake_at(member.closed_until);
  }
  for (const auto& [number, session] : sessions_) {
    if (!session.client && !session.member && !session.closing) {
      actions.wake_at(session.opened + limits::kHandshakeDeadline);
    }
  }
  for (const auto& [node, quarantine] : quarantine_)
    if (!quarantine.over) actions.wake_at(quarantine.until);
  if (!settling_.empty()) actions.wake_at(settle_deadline_);
  if (unserved_since_ && now < *unserved_since_ + kPatience)
    actions.wake_at(*unserved_since_ + kPatience);
  if (state_ != ClusterState::kStopping && !pending_ && settling_.empty() && serves_) {
    // Until a load that failed may be tried again nothing is improved.
    const TimePoint first = retry_at_.value_or(improve_at_);
    if (!goal_reached_) actions.wake_at(std::max(first, improve_at_));
    if (goal_reached_ && expert_load_.total() > 0)
      actions.wake_at(std::max({first, improve_at_, next_balance_check_}));
  }
  if (retry_at_) actions.wake_at(*retry_at_);
  if (stop_deadline_) actions.wake_at(*stop_deadline_);
}

}  // namespace troupe
