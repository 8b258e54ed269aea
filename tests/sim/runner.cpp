#include "tests/sim/runner.h"

#include <algorithm>

#include "actors/router/router.h"
#include "actors/supervisor/supervisor.h"
#include "tests/sim/rules.h"

namespace troupe::sim {
namespace {

using namespace std::chrono_literals;

/// How long a cluster may take after its last fault until everything serves and every request is
/// over, in waits as the rule about them allows. Tensor-parallel ranks exchange many times as many
/// messages a token, of which each may be a late one; what a single token may take stays the same.
constexpr int kWaitsToHeal = 2;
/// Nothing may change in a cluster that nothing happens to.
constexpr Duration kCalm = 3s;

Duration end_of(const History& history) {
  Duration end{};
  for (const Fault& fault : history.faults) end = std::max(end, fault.at + fault.lasts);
  for (const RequestSpec& request : history.requests)
    end = std::max(end, request.at + request.cancel_after);
  for (const Duration start : history.shape.starts) end = std::max(end, start);
  return end + 1ms;
}

void take_counters(World& world) {
  Counters& c = world.counters;
  c.events = world.loop.events();
  if (!world.head.supervisor()) return;
  const auto& counters = world.head.supervisor()->counters();
  c.versions = counters.placements;
  c.recoveries = counters.recoveries;
  c.moves = counters.moves;
  c.lost = counters.lost;
  c.replays = world.head.router()->counts().replayed;
  c.takeovers = world.head.takeovers();
  c.lives_kept = world.head.lives_kept();
}

void live(World& world, const History& history) {
  world.begin();
  world.run_for(end_of(history));
  if (!world.violation().empty()) return;
  const auto healed = [&] {
    // What outlived a head goes on although nobody may ask for it again.
    const Router* router = world.head.router();
    return world.clients.all_over() && world.head.operations_over() && world.all_serve() &&
           router && router->counts().running + router->counts().waiting == 0 &&
           (!history.shape.standby ||
            world.head.supervisor()->standby().state() == StandbyLink::State::kReady);
  };
  const Duration patience =
      kWaitsToHeal * std::max(1, history.shape.tensor) * wait_max(world.struck());
  // A disk may fail at any time.
  const auto now = [&] { return world.loop.now(); };
  for (TimePoint end = now() + patience; !world.run_until(healed, end - now());
       end = world.changed_at() + patience)
    if (!world.violation().empty() || world.changed_at() + patience <= now())
      return world.broken("The cluster does not heal, or a request does not end.");
  // Versions follow each other until it is where it wants to be; then nothing may change.
  const auto calm = [&] {
    const auto& counters = world.head.supervisor()->counters();
    const std::uint64_t versions = counters.placements, lost = counters.lost;
    return !world.run_until(
               [&] {
                 return world.head.supervisor()->counters().placements != versions ||
                        world.head.supervisor()->counters().lost != lost;
               },
               kCalm) &&
           healed();
  };
  int tries = 60;
  while (world.violation().empty() && !calm())
    if (--tries == 0) return world.broken("The cluster does not come to rest.");
  if (!world.violation().empty()) return;
  (void)world.run_until([&] { return at_rest(world); }, kCalm);  // a canary ends in a moment
  check_idle(world);
  take_counters(world);
  if (history.keeps_all && world.counters.lost + world.counters.replays > 0)
    world.broken("A node or a replica was lost to which nothing happened.");
}

void end(World& world) {
  if (!world.violation().empty()) return;
  world.stopping = true;
  world.head.stop("the history is over");
  const auto ended = [&] {
    bool all = world.head.ended() && !world.head.any_up();
    for (int w = 0; w < world.workers(); ++w) all = all && world.worker(w).exit().has_value();
    return all;
  };
  if (!world.run_until(ended, 8s)) world.broken("The cluster does not end.");
}

}  // namespace

Outcome run_history(const History& history) {
  World world(history);
  live(world, history);
  end(world);
  return {world.violation(), world.counters};
}

History shrink(History history) {
  const auto breaks = [](const History& h) { return !run_history(h).violation.empty(); };
  const auto drop_each = [&](auto& list) {
    for (std::size_t i = list.size(); i-- > 0;) {
      auto removed = list[i];
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
      if (!breaks(history))
        list.insert(list.begin() + static_cast<std::ptrdiff_t>(i), std::move(removed));
    }
  };
  for (std::size_t before = 0; before != history.faults.size() + history.requests.size();) {
    before = history.faults.size() + history.requests.size();
    drop_each(history.faults);
    drop_each(history.requests);
  }
  return history;
}

std::string explain(const History& history) {
  const History least = shrink(history);
  return "Broken: " + run_history(history).violation + "\nThe shortest history found, of " +
         std::to_string(history.faults.size()) + " faults and " +
         std::to_string(history.requests.size()) + " requests:\n" + to_string(least) +
         "It breaks: " + run_history(least).violation;
}

}  // namespace troupe::sim
