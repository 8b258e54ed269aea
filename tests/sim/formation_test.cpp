#include <doctest/doctest.h>

#include <chrono>
#include <set>

#include "actors/supervisor/supervisor.h"
#include "tests/sim/world.h"

using namespace troupe::sim;
using namespace std::chrono_literals;

namespace {

struct Formed {
  double seconds = 0;  ///< real
  double virtual_seconds = 0;
};

/// Until everything serves, within ten seconds of virtual time.
Formed form(World& world) {
  world.checks = false;  // they look at every node after every event
  world.control.measures = true;
  const auto begin = std::chrono::steady_clock::now();
  const troupe::TimePoint virtual_begin = world.loop.now();
  world.begin();
  while (world.violation().empty() && !world.all_serve() && world.loop.now() - virtual_begin < 10s)
    world.run_for(10ms);
  REQUIRE_MESSAGE(world.violation().empty(), world.violation());
  REQUIRE(world.all_serve());
  const auto in_seconds = [](auto time) { return std::chrono::duration<double>(time).count(); };
  return {in_seconds(std::chrono::steady_clock::now() - begin),
          in_seconds(world.loop.now() - virtual_begin)};
}

}  // namespace

TEST_CASE("each of a thousand nodes has a part") {
  History history;
  history.seed = 1;
  Shape& shape = history.shape;
  shape.workers = shape.min_devices = 1000;
  shape.device_memory = 40'000;
  shape.redundant = 994;  // a copy of one of the six experts of each layer on every node
  shape.replicas = 2;
  shape.pipeline = 2;
  for (int w = 0; w < shape.workers; ++w)
    shape.starts.push_back(std::chrono::microseconds(w * 100));
  World world(history);
  const Formed formed = form(world);
  std::set<troupe::NodeId> parts;
  for (const auto& layer : world.head.supervisor()->active()->experts)
    for (const auto& slot : layer.slots) parts.insert(slot.device.node);
  CHECK(parts.size() == 1000);
  MESSAGE("1000 nodes with a part each formed in "
          << formed.virtual_seconds << " s of virtual and " << formed.seconds
          << " s of real time with " << world.loop.events() << " events; the head sent "
          << static_cast<double>(world.control.sent()) / 1000 << " messages of together "
          << world.control.sent_bytes() / 1000 << " bytes a node and received "
          << static_cast<double>(world.control.received()) / 1000 << " messages");
  // 5 s on a machine that does nothing else.
  CHECK(formed.seconds < 60);

  // A pair in use that is cut is found by its silence, among a thousand links.
  const auto lost = [&] { return world.head.supervisor()->counters().unreachable_peers; };
  const auto before = lost();
  int shard = 0;
  const troupe::NodeId asker = world.head.supervisor()->active()->shards.back().device.node;
  while (world.worker(shard).member()->id() != asker) ++shard;
  for (int w = 0; w < shape.workers; w += 10)
    if (w != shard) world.strike({FaultKind::kCutPair, {}, {}, shard, w});
  RequestSpec request;
  request.prompt = {1, 2, 3, 4};
  request.max_tokens = 30;
  request.timeout = 3600s;
  world.clients.begin(std::vector<RequestSpec>(8, request));
  CHECK(world.run_until([&] { return lost() > before; }, 3s));
}

TEST_CASE("a thousand nodes form, most of them spare") {
  History history;
  history.seed = 1;
  Shape& shape = history.shape;
  shape.workers = shape.min_devices = 1000;
  shape.device_memory = 40'000;
  shape.redundant = 4;
  shape.replicas = 1;  // the small model needs some twenty nodes: the others are spare
  for (int w = 0; w < shape.workers; ++w)
    shape.starts.push_back(std::chrono::microseconds(w * 100));
  World world(history);
  const Formed formed = form(world);
  MESSAGE("1000 nodes formed in " << formed.seconds << " s of real time with "
                                  << world.loop.events() << " events; per node the head sent "
                                  << static_cast<double>(world.control.sent()) / 1000
                                  << " messages and received "
                                  << static_cast<double>(world.control.received()) / 1000);
  // 5 s on a machine that does nothing else.
  CHECK(formed.seconds < 60);
}
