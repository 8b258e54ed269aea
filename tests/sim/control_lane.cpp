#include "tests/sim/control_lane.h"

#include "tests/sim/world.h"

namespace troupe::sim {

std::uint32_t ControlLane::dial(int worker) {
  const std::uint32_t session = next_++;
  Session& s = sessions_[session];
  s.worker = worker;
  s.life = world_.worker(worker).life();
  s.connection = world_.network.open(0, worker + 1);
  s.up_at_worker = true;
  const bool reached = world_.network.both_reach(0, worker + 1);
  world_.loop.after(reached ? world_.network.delay() : world_.loop.pick_ms(500, 1000),
                    [this, session] { answer(session); });
  return session;
}

void ControlLane::answer(std::uint32_t session) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) return;
  Session& s = it->second;
  if (!world_.head.up() || !world_.network.both_reach(0, s.worker + 1)) {
    down_at_worker(session, "nobody answers");
    return;
  }
  s.up_at_head = true;
  const bool given_up = !s.up_at_worker;
  world_.head.session_up(session, "host-" + std::to_string(s.worker));
  if (given_up) down_at_head(session, "closed by the peer");
}

bool ControlLane::to_head(std::uint32_t session, const Envelope& envelope) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end() || !it->second.up_at_worker) return false;
  const int worker = it->second.worker;
  world_.network.send(it->second.connection, worker + 1, [this, session, envelope] {
    const auto found = sessions_.find(session);
    if (found == sessions_.end() || !found->second.up_at_head) return;
    Envelope arrived = envelope;
    // The agent's own name is what the session was bound to; its replicas speak for themselves.
    if (envelope.to.actor.kind != ActorKind::kRouter) {
      const Address stranger{kHeadNode, world_.head.incarnation(), {ActorKind::kClient, session}};
      arrived.from = found->second.bound.value_or(stranger);
    }
    world_.head.receive(arrived);
  });
  return true;
}

bool ControlLane::to_worker(std::uint32_t session, const Envelope& envelope) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end() || !it->second.up_at_head) return false;
  world_.network.send(it->second.connection, 0, [this, session, envelope] {
    const auto found = sessions_.find(session);
    if (found == sessions_.end() || !found->second.up_at_worker) return;
    world_.worker(found->second.worker).run(found->second.life, [this, session, envelope] {
      const auto still = sessions_.find(session);
      if (still == sessions_.end() || !still->second.up_at_worker) return;
      const bool first = !std::exchange(still->second.heard, true);
      world_.worker(still->second.worker).head_says(session, envelope, first);
    });
  });
  return true;
}

void ControlLane::down_at_worker(std::uint32_t session, const std::string& reason) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) return;
  world_.worker(it->second.worker).run(it->second.life, [this, session, reason] {
    const auto found = sessions_.find(session);
    if (found == sessions_.end() || !std::exchange(found->second.up_at_worker, false)) return;
    const int worker = found->second.worker;
    forget_if_over(session);
    world_.worker(worker).session_down(session, reason);
  });
}

void ControlLane::down_at_head(std::uint32_t session, const std::string& reason) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end() || !std::exchange(it->second.up_at_head, false)) return;
  forget_if_over(session);
  world_.head.session_down(session, reason);
}

void ControlLane::close_by_worker(std::uint32_t session) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) return;
  it->second.up_at_worker = false;
  world_.network.send(it->second.connection, it->second.worker + 1,
                      [this, session] { down_at_head(session, "closed by the peer"); });
}

void ControlLane::close_by_head(std::uint32_t session, const std::string& reason) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) return;
  world_.network.send(it->second.connection, 0,
                      [this, session, reason] { down_at_worker(session, reason); });
  world_.loop.after(world_.network.delay(), [this, session] { down_at_head(session, "closed"); });
}

void ControlLane::worker_died(int worker) {
  for (auto& [number, session] : sessions_) {
    if (session.worker != worker || !std::exchange(session.up_at_worker, false)) continue;
    world_.network.send(session.connection, worker + 1,
                        [this, n = number] { down_at_head(n, "connection reset"); });
  }
}

void ControlLane::head_died() {
  for (auto& [number, session] : sessions_) {
    if (!std::exchange(session.up_at_head, false)) continue;
    world_.network.send(session.connection, 0,
                        [this, n = number] { down_at_worker(n, "connection reset"); });
  }
}

void ControlLane::reset(int worker) {
  for (auto& [number, session] : sessions_) {
    if (session.worker != worker || !session.up_at_head || !session.up_at_worker) continue;
    world_.loop.after(world_.network.delay(), [this, n = number] { down_at_head(n, "reset"); });
    world_.loop.after(world_.network.delay(), [this, n = number] { down_at_worker(n, "reset"); });
  }
}

void ControlLane::forget_if_over(std::uint32_t session) {
  const auto it = sessions_.find(session);
  if (it->second.up_at_head || it->second.up_at_worker) return;
  world_.network.close(it->second.connection);
  sessions_.erase(it);
}

}  // namespace troupe::sim
