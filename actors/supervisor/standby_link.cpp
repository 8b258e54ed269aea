#include "actors/supervisor/standby_link.h"

#include <algorithm>
#include <utility>

#include "actors/supervisor/tell_router.h"
#include "runtime/standby_limits.h"

namespace troupe {
namespace {

std::set<WorkerLife> lives_of(const Membership& members) {
  std::set<WorkerLife> lives;
  for (const auto& [id, member] : members.all()) lives.insert({id, member.incarnation});
  return lives;
}

}  // namespace

std::string_view to_string(StandbyLink::State state) {
  switch (state) {
    case StandbyLink::State::kNobody:
      return "none";
    case StandbyLink::State::kCopying:
      return "copying";
    case StandbyLink::State::kReady:
      return "ready";
    case StandbyLink::State::kLeaving:
      return "leaving";
  }
  return "none";
}

// --- Following ----------------------------------------------------------------------------------

Status StandbyLink::follow(std::uint32_t session, const Follow& follow, std::uint32_t next_node,
                           SupervisorTurn& turn) {
  const SupervisorOptions& own = turn.options;
  const std::uint32_t protocol = common_protocol(follow.protocol, kProtocol);
  if (protocol == 0)
    return refused("The head is of version " + own.version + " and this standby of " +
                   follow.version + "; run the same version of troupe on both.");
  if (follow.checkpoint_hash != own.checkpoint_hash)
    return refused("The standby's checkpoint is another one than the head's; give it the same.");
  if (!own.keeps_journal)
    return refused("The head keeps no journal (--no-journal), so nobody can follow it.");
  EngineOptions engine = follow.engine;
  engine.model = own.engine.model;
  if (engine != own.engine)
    return refused(
        "The standby was started with other engine flags than the head; both must have "
        "the same, and the same name of the model.");
  // Whoever it was before may not take over any more: it says so.
  if (state_ == State::kLeaving && (follow.instead == standby_ || follow.address == address_))
    gone(turn);
  if (state_ != State::kNobody)
    return unavailable("The standby at " + address_ +
                       (state_ == State::kLeaving ? " may still take over; it is waited until more "
                                                    "than half of the workers know otherwise."
                                                  : " follows this head already."));
  state_ = State::kCopying;
  session_ = session;
  standby_ = follow.standby;
  address_ = follow.address;
  heard_ = turn.now;
  next_node_ = next_node;
  tell(lives_of(turn.members), next_node, turn);
  turn.effects.add(CopyKnown{session_, protocol});
  tell_router(CopyJournal{session_}, turn);
  turn.record("standby", "The standby at " + address_ +
                             " follows; it is being told what was "
                             "accepted.");
  return {};
}

void StandbyLink::tell(const Lives& members, std::uint32_t next_node, SupervisorTurn& turn) {
  const bool complete = state_ == State::kReady && !stopping_;
  told_.push_back({++number_, members, complete});
  if (told_.size() > limits::kSuccessionsMax) {
    return leave("it does not say what it has.", turn);
  }
  send_to_session(
      turn.effects, session_,
      Succession{
          number_, turn.options.cluster_id, next_node, complete, {members.begin(), members.end()}});
}

void StandbyLink::followed(std::uint32_t session, const Followed& followed, SupervisorTurn& turn) {
  if (!follows(session)) return;
  heard_ = turn.now;
  // It knows that it does not take over: the next life need not ask it.
  if (stopping_ && followed.succession >= number_ && state_ == State::kReady) {
    state_ = State::kCopying;
    turn.effects.add(KeepStandby{});
  }
  while (told_.size() > 1 && told_[1].number <= followed.succession) told_.pop_front();
  tell_router(JournalCopied{followed.mark}, turn);
  send_to_session(turn.effects, session, Followed{followed});
}

void StandbyLink::copy_complete(std::uint32_t session, SupervisorTurn& turn) const {
  if (follows(session) && state_ == State::kCopying && !stopping_)
    turn.effects.add(KeepStandby{address_, session});
}

void StandbyLink::kept(const StandbyKept& kept, SupervisorTurn& turn) {
  // At a stop the session's end takes back what was just noted down.
  if (!follows(kept.session) || state_ != State::kCopying || stopping_) return;
  if (kept.error)
    return leave("this head cannot note down that it may take over: " + kept.error->message, turn);
  state_ = State::kReady;
  tell(lives_of(turn.members), next_node_, turn);
  if (state_ != State::kReady) return;  // that was too much
  ++news_;
  aware_.clear();
  tell_workers(turn);
  turn.record("standby", "The standby at " + address_ +
                             " has all that was accepted, and may take "
                             "over.");
}

// --- Leaving ------------------------------------------------------------------------------------

void StandbyLink::copy_broken(std::uint32_t session, const std::string& reason,
                              SupervisorTurn& turn) {
  if (follows(session)) leave(reason, turn);
}

void StandbyLink::session_ended(std::uint32_t session, SupervisorTurn& turn) {
  if (follows(session)) leave("its connection ended.", turn);
}

void StandbyLink::leave(const std::string& why, SupervisorTurn& turn) {
  const std::string text = "The standby at " + address_ + " does not follow any more: " + why;
  turn.effects.add(CopyKnown{0});
  if (const std::uint32_t session = std::exchange(session_, 0); turn.sessions.find(session))
    turn.sessions.close(session, why, turn.effects);
  std::erase_if(told_, [](const Told& told) { return !told.complete; });
  if (std::exchange(state_, State::kLeaving) != State::kReady) {
    if (!stopping_) turn.record("standby", text);
    return gone(turn);
  }
  turn.record("standby", text +
                             " Nothing that is accepted now is answered before more than half "
                             "of the workers know that it may not take over.");
  ++news_;
  aware_.clear();
  tell_workers(turn);
  ask_at_ = turn.now;
  end_if_known(turn);
}

Successor StandbyLink::successor() const {
  if (state_ == State::kReady) return {news_, standby_, address_};
  return {news_, 0, ""};
}

void StandbyLink::tell_workers(SupervisorTurn& turn) const {
  turn.members.send_all(message_of(successor()), turn.effects);
}

void StandbyLink::member_joined(const Member& member, SupervisorTurn& turn) const {
  if (state_ == State::kReady || state_ == State::kLeaving)
    turn.effects.send(member.agent(), successor());
}

void StandbyLink::known(const Member& member, std::uint64_t number, SupervisorTurn& turn) {
  if (number != news_) return;
  aware_.insert({member.id, member.incarnation});
  end_if_known(turn);
}

/// More than half of each set of members that the standby may count: whoever of them still lives
/// that life has heard, and grants it nothing.
void StandbyLink::end_if_known(SupervisorTurn& turn) {
  if (state_ != State::kLeaving) return;
  if (std::ranges::all_of(told_, [&](const Told& told) { return most_know(told); })) gone(turn);
}

/// Whether more than half of those members know what is so now.
bool StandbyLink::most_know(const Told& told) const {
  const auto aware = std::ranges::count_if(
      told.members, [&](const WorkerLife& life) { return aware_.contains(life); });
  return 2 * static_cast<std::size_t>(aware) > told.members.size() || told.members.empty();
}

/// A worker that has not heard of it grants it nothing, and what it has not heard it cannot use.
StandbyLink::State StandbyLink::shown() const {
  if (state_ != State::kReady) return state_;
  const bool granted = !told_.empty() && told_.front().complete && most_know(told_.front());
  return granted ? State::kReady : State::kCopying;
}

/// Nobody may take over.
void StandbyLink::gone(SupervisorTurn& turn) {
  state_ = State::kNobody;
  standby_ = 0;
  told_.clear();
  turn.effects.add(KeepStandby{});
  tell_router(CopyNoMore{}, turn);
  if (!stopping_) turn.record("standby", "This head goes on without a standby.");
}

void StandbyLink::answered(const StandbyAnswered& answer, SupervisorTurn& turn) {
  if (state_ != State::kLeaving) return;
  if (!answer.rules) return gone(turn);
  if (!std::exchange(deposed_, true))
    turn.record("standby", "The standby at " + address_ +
                               " has become the head; this one answers nothing any more.");
}

void StandbyLink::stop(const std::string& reason, SupervisorTurn& turn) {
  stopping_ = true;
  if (session_ == 0) return;
  tell(lives_of(turn.members), next_node_, turn);
  send_to_session(turn.effects, session_, Stop{reason});
}

// --- Time passes --------------------------------------------------------------------------------

void StandbyLink::on_wake(SupervisorTurn& turn) {
  if (session_ != 0 && turn.now >= heard_ + limits::kStandbySilence) leave("it is silent.", turn);
  // One that stops has told it so, and does not come back.
  if (state_ != State::kLeaving || deposed_ || stopping_ || turn.now < ask_at_) return;
  ask_at_ = turn.now + limits::kSeekBackoffMax;
  turn.effects.add(AskStandby{address_});
}

void StandbyLink::end_turn(std::uint32_t next_node, SupervisorTurn& turn) {
  if (session_ == 0 || stopping_) return;
  Lives members = lives_of(turn.members);
  if (next_node == next_node_ && !told_.empty() && told_.back().members == members) return;
  next_node_ = next_node;
  tell(members, next_node, turn);
}

void StandbyLink::arrange_wake(SupervisorEffects& effects) const {
  if (session_ != 0) effects.wake_at(heard_ + limits::kStandbySilence);
  if (state_ == State::kLeaving && !deposed_ && !stopping_) effects.wake_at(ask_at_);
}

std::string StandbyLink::violation() const {
  const bool heard = state_ == State::kCopying || state_ == State::kReady;
  if (heard != (session_ != 0)) return "A standby that is heard has a session, and no other.";
  if (told_.size() > limits::kSuccessionsMax + 1) return "A standby was told too much.";
  return {};
}

}  // namespace troupe
