#include "tests/sim/control_network.h"

#include <algorithm>
#include <charconv>

#include "runtime/limits.h"
#include "tests/sim/world.h"
#include "transport/codec.h"

namespace troupe::sim {

// --- The head's end -----------------------------------------------------------------------------

HostPort listens_at(int machine) { return {"machine-" + std::to_string(machine), 6379}; }

void ControlNetwork::serve(SimHost& head, ControlEvents& events) {
  places_[head.machine()] = {&head, &events};
}

Status ControlNetwork::send(std::uint32_t session, const Envelope& envelope) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end() || !it->second.up_at_head) return unavailable("The session has ended.");
  if (!places_.at(it->second.place).host->acts()) return {};
  ++sent_;
  if (measures) sent_bytes_ += transport::encode(envelope)->size();
  world_.network.send(it->second.connection, it->second.place,
                      [this, session, envelope] { arrive(session, envelope); });
  return {};
}

void ControlNetwork::close(std::uint32_t session, const std::string& reason) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end() || !it->second.up_at_head) return;
  if (!places_.at(it->second.place).host->acts()) return;
  world_.network.send(it->second.connection, it->second.place,
                      [this, session, reason] { down_at_worker(session, reason); });
  world_.loop.after(world_.network.delay(), [this, session] { down_at_head(session, "closed"); });
}

void ControlNetwork::head_died(int machine) {
  places_.erase(machine);
  for (auto& [number, session] : sessions_) {
    if (session.place != machine || !std::exchange(session.up_at_head, false)) continue;
    world_.network.send(session.connection, machine,
                        [this, n = number] { down_at_worker(n, "connection reset"); });
  }
}

void ControlNetwork::down_at_head(std::uint32_t session, const std::string& reason) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end() || !std::exchange(it->second.up_at_head, false)) return;
  const auto place = places_.find(it->second.place);
  forget_if_over(session);
  if (place != places_.end())
    place->second.host->run([hub = place->second.events, session, reason] {
      hub->on_session_down(SessionId{session}, {SessionEndKind::kPeerClosed, reason});
    });
}

// --- The worker's end ---------------------------------------------------------------------------

std::uint32_t ControlNetwork::dial(SimLink& link, int place) {
  const std::uint32_t session = next_++;
  Session& s = sessions_[session];
  s.link = &link;
  s.machine = link.host().machine();
  s.place = place;
  s.connection = world_.network.open(place, link.host().machine());
  s.up_at_worker = true;
  const bool reached = world_.network.both_reach(place, link.host().machine());
  world_.loop.after(reached ? world_.network.delay() : world_.loop.pick_ms(500, 1000),
                    [this, session] { answer(session); });
  world_.loop.after(limits::kHandshakeDeadline, [this, session] {
    const auto it = sessions_.find(session);
    if (it == sessions_.end() || it->second.heard || !it->second.up_at_worker) return;
    it->second.link->down(session, "the head did not answer in time");
    close_by_worker(session, "closed by the peer");
  });
  return session;
}

void ControlNetwork::answer(std::uint32_t session) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) return;
  Session& s = it->second;
  const int machine = s.machine;
  const auto place = places_.find(s.place);
  if (place == places_.end() || !world_.network.both_reach(s.place, machine))
    return down_at_worker(session, "nobody answers");
  s.up_at_head = true;
  place->second.host->run([hub = place->second.events, session, machine] {
    hub->on_session_up(SessionId{session}, {"host-" + std::to_string(machine)});
  });
  if (!s.up_at_worker) down_at_head(session, "closed by the peer");
}

bool ControlNetwork::to_head(std::uint32_t session, const Envelope& envelope) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end() || !it->second.up_at_worker) return false;
  world_.network.send(it->second.connection, it->second.machine, [this, session, envelope] {
    const auto found = sessions_.find(session);
    if (found == sessions_.end() || !found->second.up_at_head) return;
    ++received_;
    const Place& place = places_.at(found->second.place);
    if (world_.mutation() == Mutation::kOldTokens) hear_old_tokens(place, session, envelope);
    place.host->run(
        [hub = place.events, session, envelope] { hub->on_message(SessionId{session}, envelope); });
  });
  return true;
}

/// As if they were told to this life of the head, and now.
void ControlNetwork::hear_old_tokens(const Place& place, std::uint32_t session,
                                     const Envelope& envelope) {
  if (!std::holds_alternative<SequenceEvents>(*envelope.message)) return;
  Told& told = told_[sessions_.at(session).machine];
  if (std::exchange(told.head, place.host) != place.host)
    told.before = std::exchange(told.here, {});
  told.here.push_back(envelope.message);
  for (const MessagePtr& message : told.before) {
    const Envelope old{envelope.from, envelope.to, message};
    place.host->run(
        [hub = place.events, session, old] { hub->on_message(SessionId{session}, old); });
  }
}

void ControlNetwork::arrive(std::uint32_t session, const Envelope& envelope) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end() || !it->second.up_at_worker) return;
  const bool first = !std::exchange(it->second.heard, true);
  it->second.link->arrive(session, first, envelope);
}

void ControlNetwork::down_at_worker(std::uint32_t session, const std::string& reason) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end() || !std::exchange(it->second.up_at_worker, false)) return;
  SimLink& link = *it->second.link;
  forget_if_over(session);
  link.down(session, reason);
}

void ControlNetwork::close_by_worker(std::uint32_t session, const std::string& reason) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end() || !std::exchange(it->second.up_at_worker, false)) return;
  world_.network.send(it->second.connection, it->second.machine,
                      [this, session, reason] { down_at_head(session, reason); });
  forget_if_over(session);
}

void ControlNetwork::died(const SimLink& link) {
  std::vector<std::uint32_t> numbers;
  for (const auto& [number, session] : sessions_)
    if (session.link == &link) numbers.push_back(number);
  for (const std::uint32_t number : numbers) close_by_worker(number, "connection reset");
}

// --- Both ---------------------------------------------------------------------------------------

void ControlNetwork::reset(int machine) {
  for (auto& [number, session] : sessions_) {
    if (session.machine != machine || !session.up_at_head || !session.up_at_worker) continue;
    world_.loop.after(world_.network.delay(), [this, n = number] { down_at_head(n, "reset"); });
    world_.loop.after(world_.network.delay(), [this, n = number] { down_at_worker(n, "reset"); });
  }
}

void ControlNetwork::forget_if_over(std::uint32_t session) {
  const auto it = sessions_.find(session);
  if (it->second.up_at_head || it->second.up_at_worker) return;
  world_.network.close(it->second.connection);
  sessions_.erase(it);
}

// --- One process's way to the head --------------------------------------------------------------

void SimLink::connect() {
  if (!host_.alive()) return;
  if (session_) network_.close_by_worker(*session_, "closed by the peer");
  if (!std::exchange(stays_, false)) ++next_;
  session_ = network_.dial(*this, places_[(next_ - 1) % places_.size()]);
}

void SimLink::seek_also(const std::string& address) {
  for (int machine = 0; machine <= host_.world().workers() + 1; ++machine)
    if (to_string(listens_at(machine)) == address && std::ranges::count(places_, machine) == 0)
      places_.push_back(machine);
}

Status SimLink::send(const Envelope& envelope) {
  if (session_ && host_.acts() && network_.to_head(*session_, envelope)) return {};
  return unavailable("There is no connection to the head.");
}

void SimLink::close() {
  if (!host_.alive() || !session_) return;
  network_.close_by_worker(*session_, "closed by the peer");
  host_.later(host_.world().network.delay(),
              [this, session = *session_] { down(session, "closed"); });
}

void SimLink::arrive(std::uint32_t session, bool first, const Envelope& envelope) {
  host_.run([this, session, first, envelope] {
    if (session_ != session) return;
    if (first) events_.up({});
    events_.message(envelope);
  });
}

void SimLink::down(std::uint32_t session, const std::string& reason) {
  host_.run([this, session, reason] {
    if (session_ != session) return;
    session_.reset();
    events_.down(reason, false);
  });
}

}  // namespace troupe::sim
