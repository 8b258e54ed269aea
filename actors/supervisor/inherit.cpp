#include "actors/supervisor/placement_lifecycle.h"
#include "runtime/counted.h"

// What an earlier head had in force, and workers have kept: it is the version in force of this
// head's life, too, and the next one gives everyone the same where nothing is missing.

namespace troupe {

bool PlacementLifecycle::inherits(const Join& join, SupervisorTurn& turn) {
  if (!turn.members.numerics()) return false;
  return inheritance_.goes_on(join, turn.options, turn.members, model(turn.options, turn.members),
                              turn.now);
}

/// Those that do not come back are lost, as for any member: what spans them ends, and older
/// versions are let go, so that their memory is free before anything is loaded. What may have been
/// computed with anything that is not there any more is computed again.
void PlacementLifecycle::inherit(SupervisorTurn& turn) {
  auto taken = inheritance_.take(turn.members);
  if (!taken) return;
  keep_numerics(turn);
  for (const NodeId node : taken->nodes) {
    const Ref<NodeAgentInbox> agent = turn.members.at(node).agent();
    for (const NodeId lost : taken->missing)
      turn.effects.send(agent, MemberLost{lost, turn.options.incarnation,
                                          to_string(lost) + " did not come back to the head."});
    turn.effects.send(agent, Retire{taken->placement.version});
  }
  step_tokens_ = taken->step_tokens;
  turn.record("placement", "Version " + std::to_string(taken->placement.version.value) +
                               " of the placement goes on under this head, on " +
                               counted(taken->nodes.size(), "node") + ".");
  room_.shards_left = taken->shards_left;
  versions_.inherit(std::move(taken->placement), std::move(taken->nodes), taken->next_replica);
  canaries_.follow(*versions_.active(), turn.now);
  canaries_.wait();
  if (!taken->whole || !taken->missing.empty()) forget_prefixes(std::nullopt, turn);
}

}  // namespace troupe
