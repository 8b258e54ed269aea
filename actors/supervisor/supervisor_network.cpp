#include "actors/supervisor/supervisor.h"

// What is measured of the links between members.

namespace troupe {

void Supervisor::on(const NetworkQuery& query, const Envelope& envelope, TimePoint now,
                    Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  if (const auto session = client_of(envelope, turn))
    network_.begin(*session, query, placement_.service().stopping(), placement_.versions().quiet(),
                   turn);
}

void Supervisor::on(const LinkMeasured& measured, const Envelope& envelope, TimePoint now,
                    Effects& effects) {
  SupervisorTurn turn = turn_of(now, effects);
  if (const Member* member = member_of(envelope, turn)) network_.measured(*member, measured, turn);
}

}  // namespace troupe
