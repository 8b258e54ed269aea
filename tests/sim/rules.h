#pragma once

namespace troupe::sim {

class World;

/// What must hold after every event. (What can be seen where it happens is checked there: tokens in
/// clients.cpp, steps in node_turns.cpp, memory in node_actors.cpp.)
void check_rules(World& world);

/// What must hold once nothing goes on any more.
void check_idle(World& world);

}  // namespace troupe::sim
