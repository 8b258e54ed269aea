#include <doctest/doctest.h>

#include <chrono>

#include "actors/supervisor/supervisor.h"
#include "tests/sim/world.h"

using namespace troupe::sim;
using namespace std::chrono_literals;

TEST_CASE("a thousand nodes form") {
  History history;
  history.seed = 1;
  Shape& shape = history.shape;
  shape.workers = shape.min_devices = 1000;
  shape.device_memory = 40'000;
  shape.redundant = 4;
  shape.replicas = 1;  // the small model needs some twenty nodes: the others are spare
  for (int w = 0; w < shape.workers; ++w)
    shape.starts.push_back(std::chrono::microseconds(w * 100));
  const auto begin = std::chrono::steady_clock::now();
  World world(history);
  world.checks = false;  // they look at every node after every event
  world.begin();
  int rounds = 200;
  do {
    world.run_for(10ms);
  } while (world.violation().empty() && !world.all_serve() && --rounds > 0);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  REQUIRE_MESSAGE(world.violation().empty(), world.violation());
  REQUIRE(rounds > 0);
  MESSAGE("1000 nodes formed in " << seconds << " s of real time with " << world.loop.events()
                                  << " events; per node the head sent "
                                  << static_cast<double>(world.control.sent()) / 1000
                                  << " messages and received "
                                  << static_cast<double>(world.control.received()) / 1000);
  // 5 s on a machine that does nothing else.
  CHECK(seconds < 60);
}
