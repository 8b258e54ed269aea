#include "actors/supervisor/tell_router.h"

namespace troupe {
namespace {

Ref<RouterInbox> router(const SupervisorTurn& turn) {
  return {kHeadNode, turn.options.incarnation};
}

}  // namespace

void tell_router(LifeLost lost, SupervisorTurn& turn) {
  turn.effects.send(router(turn), std::move(lost));
}
void tell_router(LifeCrashed crashed, SupervisorTurn& turn) {
  turn.effects.send(router(turn), std::move(crashed));
}
void tell_router(ReplicasLost lost, SupervisorTurn& turn) {
  turn.effects.send(router(turn), std::move(lost));
}
void tell_router(PrefixesForgotten forgotten, SupervisorTurn& turn) {
  turn.effects.send(router(turn), std::move(forgotten));
}
void tell_router(ReplicasChanged changed, SupervisorTurn& turn) {
  turn.effects.send(router(turn), std::move(changed));
}
void tell_router(AdmissionChanged changed, SupervisorTurn& turn) {
  turn.effects.send(router(turn), std::move(changed));
}
void tell_router(RequestsEnd end, SupervisorTurn& turn) {
  turn.effects.send(router(turn), std::move(end));
}
void tell_router(CopyJournal copy, SupervisorTurn& turn) { turn.effects.send(router(turn), copy); }
void tell_router(JournalCopied copied, SupervisorTurn& turn) {
  turn.effects.send(router(turn), copied);
}
void tell_router(CopyNoMore no_more, SupervisorTurn& turn) {
  turn.effects.send(router(turn), no_more);
}

}  // namespace troupe
