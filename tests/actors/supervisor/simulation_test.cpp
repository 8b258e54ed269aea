#include <doctest/doctest.h>

#include <cstdlib>

#include "cluster_simulation.h"

namespace troupe {
namespace {

using namespace std::chrono_literals;

/// One life of a cluster: it forms under faults, heals, must serve, and ends in order.
void run_seed(std::uint64_t seed) {
  CAPTURE(seed);
  std::mt19937_64 shape(seed * 7919);
  const int workers = 2 + static_cast<int>(shape() % 4);
  const int min_devices = 1 + static_cast<int>(shape() % static_cast<unsigned>(workers));
  ClusterSimulation sim(seed, workers, min_devices);
  sim.load_failures = seed % 3 == 0;
  sim.start();
  const int faults = static_cast<int>(shape() % 12);
  for (int i = 0; i < faults; ++i) {
    sim.run_for(sim.pick_ms(10, 800));
    sim.random_fault();
  }
  sim.run_for(3s);  // every fault heals by itself within that
  sim.load_failures = false;
  const bool serves = sim.run_until([&] { return sim.all_serve(); }, 90s);
  REQUIRE_MESSAGE(sim.violation().empty(), sim.violation());
  REQUIRE_MESSAGE(serves, sim.describe());
  const int times = sim.times_ready();
  sim.run_for(2s);
  REQUIRE_MESSAGE(sim.violation().empty(), sim.violation());
  REQUIRE_MESSAGE(sim.all_serve(), sim.describe());
  CHECK(sim.times_ready() == times);  // it stays so

  sim.stop_head();
  const auto ended = [&] {
    bool all = sim.head_ended();
    for (int w = 0; w < workers; ++w) all = all && sim.exit_of(w).has_value();
    return all;
  };
  REQUIRE_MESSAGE(sim.run_until(ended, 6s), sim.describe());
  for (int w = 0; w < workers; ++w) CHECK(sim.exit_of(w)->code == 0);
}

TEST_CASE("clusters form, heal and end under random faults") {
  // TROUPE_SEED replays one; TROUPE_SEEDS runs more than the usual.
  if (const char* seed = std::getenv("TROUPE_SEED")) {
    run_seed(std::strtoull(seed, nullptr, 10));
    return;
  }
  const char* count = std::getenv("TROUPE_SEEDS");
  const std::uint64_t seeds = count ? std::strtoull(count, nullptr, 10) : 500;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) run_seed(seed);
}

TEST_CASE("a killed worker is lost at once, and the cluster serves again when it is back") {
  ClusterSimulation sim(1, 2, 2);
  sim.start();
  REQUIRE(sim.run_until([&] { return sim.all_serve(); }, 10s));
  sim.kill_worker(1, 5s);
  REQUIRE(sim.run_until([&] { return sim.head().state() == ClusterState::kDegraded; }, 500ms));
  CHECK(sim.lost_while_ready() == 1);
  CHECK(sim.head().message().find("is lost") != std::string::npos);
  CHECK(sim.head().message().find("1 of 2 are here") != std::string::npos);
  CHECK(!sim.head().lost_parts().empty());
  // What is left does not serve a version that has lost a part.
  REQUIRE(sim.run_until([&] { return !sim.agent(0).active(); }, 500ms));
  CHECK(sim.run_until([&] { return sim.all_serve(); }, 10s));
  CHECK(sim.head().lost_parts().empty());
}

TEST_CASE("a hung worker is lost when its lease ends, and stops itself when it wakes") {
  ClusterSimulation sim(2, 3, 2);
  sim.start();
  REQUIRE(sim.run_until([&] { return sim.all_serve(); }, 10s));
  const auto version = sim.head().placement()->version;
  int used = 0;
  while (!sim.agent(used).active()) ++used;  // two devices are enough: one may be spare
  sim.hang_worker(used, 4s);
  REQUIRE(sim.run_until([&] { return sim.head().state() != ClusterState::kReady; }, 1500ms));
  // A new version without it.
  REQUIRE(sim.run_until([&] { return sim.head().state() == ClusterState::kReady; }, 2s));
  CHECK(sim.head().placement()->version > version);
  CHECK(sim.head().members().size() == 2);
  CHECK(sim.run_until([&] { return sim.all_serve(); }, 10s));
}

TEST_CASE("a stuck device is a hung node") {
  ClusterSimulation sim(3, 2, 1);
  sim.start();
  REQUIRE(sim.run_until([&] { return sim.all_serve() && sim.head().members().size() == 2; }, 10s));
  sim.stick_device(0, 5s);
  CHECK(sim.run_until([&] { return sim.head().members().size() == 1; }, 1600ms));
}

TEST_CASE("a head that dies: workers stop serving, seek it and rejoin with their ids") {
  ClusterSimulation sim(4, 3, 3);
  sim.start();
  REQUIRE(sim.run_until([&] { return sim.all_serve(); }, 10s));
  std::map<int, NodeId> ids;
  for (int w = 0; w < 3; ++w) ids[w] = sim.agent(w).id();
  sim.kill_head(3s);
  const auto nobody_serves = [&] {
    return !sim.agent(0).active() && !sim.agent(1).active() && !sim.agent(2).active();
  };
  REQUIRE(sim.run_until(nobody_serves, 1300ms));
  REQUIRE(sim.run_until([&] { return sim.head_up(); }, 4s));
  REQUIRE(sim.run_until([&] { return sim.head().members().size() == 3; }, 1300ms));
  REQUIRE(sim.run_until([&] { return sim.all_serve(); }, 5s));
  for (int w = 0; w < 3; ++w) CHECK(sim.agent(w).id() == ids[w]);
}

TEST_CASE("a worker that leaves is gone at once and ends well") {
  ClusterSimulation sim(5, 2, 1);
  sim.start();
  REQUIRE(sim.run_until([&] { return sim.all_serve(); }, 10s));
  sim.leave(1);
  REQUIRE(sim.run_until([&] { return sim.exit_of(1).has_value(); }, 600ms));
  CHECK(sim.exit_of(1)->code == 0);
  const auto alone = [&] {
    return sim.head().state() == ClusterState::kReady && sim.head().members().size() == 1;
  };
  REQUIRE(sim.run_until(alone, 3s));
  CHECK(sim.head().counters().lost == 0);
}

}  // namespace
}  // namespace troupe
