#include "actors/supervisor/supervisor.h"

// What a standby says, and what others say of it.

namespace troupe {

void Supervisor::on(const Follow& follow, const Envelope& envelope, TimePoint now,
                    Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  const Sender sender = sender_of(envelope, turn);
  if (!is(Sender::Kind::kStranger, sender, envelope, turn)) return;
  if (placement_.service().stopping())
    return refuse_session(sender.session, unavailable("The cluster is stopping."), turn);
  const Status may = standby_.follow(sender.session, follow, members_.next_node(), turn);
  if (!may.ok()) return refuse_session(sender.session, may.error(), turn);
  sessions_.become_standby(sender.session);
}

void Supervisor::on(const Followed& followed, const Envelope& envelope, TimePoint now,
                    Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  const Sender sender = sender_of(envelope, turn);
  if (is(Sender::Kind::kStandby, sender, envelope, turn))
    standby_.followed(sender.session, followed, turn);
}

void Supervisor::on(const SuccessorKnown& known, const Envelope& envelope, TimePoint now,
                    Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  if (const Member* member = member_of(envelope, turn)) standby_.known(*member, known.number, turn);
}

void Supervisor::on(CopyComplete complete, TimePoint now, Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  standby_.copy_complete(complete.session, turn);
}

void Supervisor::on(StandbyKept kept, TimePoint now, Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  standby_.kept(kept, turn);
}

void Supervisor::on(CopyBroken broken, TimePoint now, Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  standby_.copy_broken(broken.session, broken.reason, turn);
}

/// One that is deposed ends without a word to the workers: they are another head's.
void Supervisor::on(StandbyAnswered answer, TimePoint now, Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  if (standby_.deposed()) return;
  standby_.answered(answer, turn);
  if (standby_.deposed()) effects.add(HeadMayEnd{standby_.address()});
}

}  // namespace troupe
