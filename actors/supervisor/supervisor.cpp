#include "actors/supervisor/supervisor.h"

#include <algorithm>
#include <cassert>

#include "actors/supervisor/check_inventory.h"
#include "actors/supervisor/tell_router.h"
#include "runtime/limits.h"

// Who speaks: sessions, programs, and the turn. What members say is in supervisor_members.cpp.

namespace troupe {
namespace {

/// How tensors are packed and what the canary gives depend on the numerics.
KnownState known_for(const SupervisorOptions& options) {
  KnownState known = options.known;
  if (!options.engine.numerics || options.engine.numerics == known.numerics) return known;
  known.canary.reset();
  for (KnownTensor& tensor : known.tensors) tensor.proof.packed.reset();
  return known;
}

}  // namespace

Supervisor::Supervisor(SupervisorOptions options)
    : options_(std::move(options)),
      sessions_(options_.started, options_.started_unix_ms),
      members_(options_),
      placement_(waiting_message(members_, options_), known_for(options_), options_) {}

// --- Sessions -----------------------------------------------------------------------------------

void Supervisor::on(SessionUp up, TimePoint now, Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  const std::uint32_t session = up.session;
  sessions_.open(std::move(up), now);
  if (sessions_.size() > limits::kSessionsMax) {
    refuse_session(session,
                   resource_exhausted("The head has as many sessions as it may; try later."), turn);
  } else {
    send_to_session(effects, session,
                    Greeting{kProtocol, options_.cluster_id, options_.version, options_.model_path,
                             options_.checkpoint_hash, members_.numerics(), options_.model_place});
  }
}

void Supervisor::on(SessionDown down, TimePoint now, Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  const std::optional<NodeId> node = sessions_.end(down.session);
  placement_.session_ended(down.session);
  network_.session_ended(down.session, turn);
  standby_.session_ended(down.session, turn);
  const Member* member = node ? members_.find(*node) : nullptr;
  if (!member || member->session != down.session) return;
  remove(*node, "its connection went down: " + down.reason, false, turn);
  placement_.consider(turn);
}

Supervisor::Sender Supervisor::sender_of(const Envelope& envelope, SupervisorTurn& turn) {
  assert(envelope.message);
  const Address& from = envelope.from;
  if (from.node == kHeadNode) return session_of(envelope, turn);
  const Member* known = members_.find(from.node);
  if (known && turn.now - known->last_renew >= limits::kLease) check_leases(turn);
  Member* member = members_.find(from.node);
  if (!member || member->incarnation != from.incarnation) {
    refuse_message(envelope, to_string(from) + " is no member of this cluster; join again.", turn);
    return {};
  }
  return {Sender::Kind::kMember, member->session, member};
}

Supervisor::Sender Supervisor::session_of(const Envelope& envelope, SupervisorTurn& turn) {
  const Address& from = envelope.from;
  if (from.incarnation != options_.incarnation || from.actor.kind != ActorKind::kClient) {
    refuse_message(envelope, "Only sessions speak to the head's Supervisor.", turn);
    return {};
  }
  const Sessions::Session* session = sessions_.find(from.actor.index);
  if (!session) {
    refuse_message(envelope, "That session is over; connect again.", turn);
    return {};
  }
  if (session->closing) return {};
  switch (session->kind) {
    case Sessions::Kind::kStranger:
      return {Sender::Kind::kStranger, from.actor.index, nullptr};
    case Sessions::Kind::kClient:
      return {Sender::Kind::kClient, from.actor.index, nullptr};
    case Sessions::Kind::kStandby:
      return {Sender::Kind::kStandby, from.actor.index, nullptr};
    case Sessions::Kind::kMember:
      break;
  }
  ++counters_.garbage;
  refuse_message(envelope, "A member speaks with its own address.", turn);
  return {};
}

/// Whether the sender is of that kind. If not, the message is out of place, and refused.
bool Supervisor::is(Sender::Kind kind, const Sender& sender, const Envelope& envelope,
                    SupervisorTurn& turn) {
  if (sender.kind == kind) return true;
  switch (sender.kind) {
    case Sender::Kind::kNobody:
      break;
    case Sender::Kind::kStranger:
      ++counters_.garbage;
      refuse_session(sender.session,
                     refused("The first message must be Join, ClientHello or Follow."), turn);
      break;
    case Sender::Kind::kClient:
      refuse_message(envelope, "The Supervisor does not take that message from a client.", turn);
      break;
    case Sender::Kind::kStandby:
      refuse_message(envelope, "The Supervisor does not take that message from a standby.", turn);
      break;
    case Sender::Kind::kMember:
      ++counters_.garbage;
      refuse_message(envelope, "The Supervisor does not take that message from a worker.", turn);
      break;
  }
  return false;
}

Member* Supervisor::member_of(const Envelope& envelope, SupervisorTurn& turn) {
  const Sender sender = sender_of(envelope, turn);
  return is(Sender::Kind::kMember, sender, envelope, turn) ? sender.member : nullptr;
}

std::optional<std::uint32_t> Supervisor::client_of(const Envelope& envelope, SupervisorTurn& turn) {
  const Sender sender = sender_of(envelope, turn);
  if (!is(Sender::Kind::kClient, sender, envelope, turn)) return std::nullopt;
  return sender.session;
}

void Supervisor::refuse_session(std::uint32_t session, const Error& error, SupervisorTurn& turn) {
  ++counters_.refused_joins;
  send_to_session(turn.effects, session, Refused{error.code, error.message});
  turn.record("refused",
              "The peer at " + sessions_.find(session)->peer + " was refused. " + error.message);
  sessions_.close(session, error.message, turn.effects);
}

void Supervisor::refuse_message(const Envelope& envelope, std::string reason,
                                SupervisorTurn& turn) {
  ++counters_.refused_messages;
  const Address& from = envelope.from;
  if (from.node == kHeadNode && from.actor.kind == ActorKind::kClient)
    send_to_session(turn.effects, from.actor.index,
                    undeliverable(envelope, refused(std::move(reason))));
  else
    turn.effects.refuse(envelope, std::move(reason));
}

// --- Programs -----------------------------------------------------------------------------------

void Supervisor::on(const ClientHello& hello, const Envelope& envelope, TimePoint now,
                    Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  const Sender sender = sender_of(envelope, turn);
  if (!is(Sender::Kind::kStranger, sender, envelope, turn)) return;
  if (Status status = check_protocol(hello.protocol); !status)
    return refuse_session(sender.session, status.error(), turn);
  sessions_.become_client(sender.session);
  send_to_session(effects, sender.session, ClientWelcome{sender.session});
}

void Supervisor::on(const StatusQuery& query, const Envelope& envelope, TimePoint now,
                    Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  if (const auto session = client_of(envelope, turn))
    effects.add(AnswerStatus{nullptr, *session, query.query});
}

void Supervisor::on(StatusWanted wanted, TimePoint, Effects& effects) {
  effects.add(AnswerStatus{std::move(wanted.reply)});
}

void Supervisor::on(const StopQuery& query, const Envelope& envelope, TimePoint now,
                    Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  const auto session = client_of(envelope, turn);
  if (!session) return;
  StopReply reply{query.query, {options_.pid}};
  for (const auto& [id, member] : members_.all())
    if (member.inventory.host == options_.host) reply.pids.push_back(member.inventory.pid);
  send_to_session(effects, *session, std::move(reply));
  stop("A client asked for it.", turn);
}

void Supervisor::on(const DrainQuery& query, const Envelope& envelope, TimePoint now,
                    Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  if (const auto session = client_of(envelope, turn)) placement_.drain(*session, query, turn);
}

void Supervisor::on(const RebalanceQuery& query, const Envelope& envelope, TimePoint now,
                    Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  if (const auto session = client_of(envelope, turn)) placement_.rebalance(*session, query, turn);
}

void Supervisor::on(const Subscribe&, const Envelope& envelope, TimePoint now, Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  if (const auto session = client_of(envelope, turn)) sessions_.subscribe(*session);
}

// --- The end ------------------------------------------------------------------------------------

void Supervisor::on(StopCluster wanted, TimePoint now, Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  stop(wanted.reason, turn);
}

void Supervisor::stop(const std::string& reason, SupervisorTurn& turn) {
  if (placement_.service().stopping()) return;
  placement_.stop(reason);
  network_.stop(turn);
  tell_router(RequestsEnd{"The cluster is stopping."}, turn);
  turn.record("stopping", reason);
  members_.send_all(message_of(Stop{reason}), turn.effects);
  standby_.stop(reason, turn);
  stop_deadline_ = turn.now + limits::kStopDeadline;
}

void Supervisor::end_if_all_left(SupervisorTurn& turn) {
  if (!stop_deadline_) return;
  // A standby says that it knows: or the next life would have to ask it.
  if ((!members_.empty() || standby_.listens()) && turn.now < *stop_deadline_) return;
  sessions_.close_all("The cluster ends.", turn.effects);
  const bool nobody_serves =
      members_.empty() && std::all_of(gone().begin(), gone().end(), [&](const Member& m) {
        return turn.now - m.last_renew >= limits::kLease;
      });
  // All are known to have ended: the next life may count from 1 again.
  if (nobody_serves) turn.effects.add(KeepNextNode{1});
  turn.effects.add(ForgetKnown{});
  stop_deadline_.reset();
  turn.effects.add(HeadMayEnd{});
}

// --- The turn -----------------------------------------------------------------------------------

/// When the head itself stood still, nobody's lease has ended: first of all they begin again.
SupervisorTurn Supervisor::turn_of(TimePoint now, Effects& effects) {
  SupervisorTurn turn{now, effects, options_, sessions_, members_, links_, counters_};
  const auto late = sleep_.overslept(now);
  if (!late || members_.empty()) return turn;
  members_.renew_all(now);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(*late);
  turn.record("head_paused", "The head stood still for " + std::to_string(ms.count()) +
                                 " ms and more; all leases begin again.");
  return turn;
}

void Supervisor::on(NoteEvent note, TimePoint now, Effects& effects) {
  turn_of(now, effects).record(std::move(note.kind), std::move(note.text));
}

void Supervisor::on(Listening listening, TimePoint now, Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  options_.join_line = std::move(listening.join_line);
  placement_.consider(turn);  // the message has that line in it
}

void Supervisor::on_wake(TimePoint now, Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  check_leases(turn);
  standby_.on_wake(turn);
  sessions_.close_silent(now, effects);
  sessions_.sum_up_events(now, effects);
  placement_.on_wake(turn);
  network_.on_wake(turn);
  take_out(placement_.take_wrong(), turn);
  if (links_.end_quarantines(now)) placement_.change_goal(now);
  placement_.consider(turn);
}

void Supervisor::end_turn(TimePoint now, Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  standby_.end_turn(members_.next_node(), turn);
  end_if_all_left(turn);
  members_.arrange_wake(now, effects);
  standby_.arrange_wake(effects);
  sessions_.arrange_wake(effects);
  links_.arrange_wake(effects);
  network_.arrange_wake(effects);
  placement_.arrange_wake(now, effects);
  if (stop_deadline_) effects.wake_at(*stop_deadline_);
  if (!members_.empty()) effects.wake_at(now + limits::kSleepLook);
  sleep_.expect(effects.wake());
}

std::string Supervisor::violation() const {
  if (auto v = sessions_.violation(); !v.empty()) return v;
  if (auto v = members_.violation(); !v.empty()) return v;
  if (auto v = links_.violation(members_); !v.empty()) return v;
  if (auto v = network_.violation(members_, sessions_); !v.empty()) return v;
  if (auto v = standby_.violation(); !v.empty()) return v;
  if (auto v = placement_.violation(members_, sessions_); !v.empty()) return v;
  for (const auto& [id, member] : members_.all()) {
    const Sessions::Session* session = sessions_.find(member.session);
    if (!session || session->kind != Sessions::Kind::kMember || session->member != id)
      return to_string(id) + " is a member without a session.";
  }
  if (stop_deadline_ && !placement_.service().stopping())
    return "The cluster waits for its end and does not stop.";
  return {};
}

}  // namespace troupe
