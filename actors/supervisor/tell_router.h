#pragma once

#include "actors/supervisor/turn.h"

namespace troupe {

// What the Supervisor says to the Router.
void tell_router(LifeLost lost, SupervisorTurn& turn);
void tell_router(LifeCrashed crashed, SupervisorTurn& turn);
void tell_router(ReplicasLost lost, SupervisorTurn& turn);
void tell_router(PrefixesForgotten forgotten, SupervisorTurn& turn);
void tell_router(ReplicasChanged changed, SupervisorTurn& turn);
void tell_router(AdmissionChanged changed, SupervisorTurn& turn);
void tell_router(RequestsEnd end, SupervisorTurn& turn);
void tell_router(CopyJournal copy, SupervisorTurn& turn);
void tell_router(JournalCopied copied, SupervisorTurn& turn);
void tell_router(CopyNoMore no_more, SupervisorTurn& turn);

}  // namespace troupe
