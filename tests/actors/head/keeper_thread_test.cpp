#include "actors/head/keeper_thread.h"

#include <doctest/doctest.h>

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/clock.h"
#include "tests/actors/head/idle_keeper.h"
#include "tests/patience.h"

using namespace troupe;
using namespace troupe::testing;

using Say = KeeperThread::Say;

namespace {

constexpr auto kAMoment = std::chrono::milliseconds(1);

}  // namespace

TEST_CASE("what is kept is there when run() comes back, in its order") {
  KeeperThread keeping(std::make_shared<IdleKeeper>(), {kTestPatience, kTestPatience});
  std::vector<int> kept;
  for (int i = 0; i < 100; ++i) {
    keeping.run([&kept, i](StateKeeper&, const Say&) { kept.push_back(i); });
    REQUIRE(kept.size() == static_cast<std::size_t>(i + 1));
  }
  CHECK(kept.back() == 99);
}

TEST_CASE("a disk that hangs holds nobody up, and all is kept when it goes on") {
  std::optional<KeeperThread> keeping(std::in_place, std::make_shared<IdleKeeper>(),
                                      KeeperThread::Options{kAMoment, kTestPatience});
  std::promise<void> well;
  std::vector<int> kept;  // of the thread, until it has ended
  keeping->run([&kept, hangs = well.get_future().share()](StateKeeper&, const Say&) {
    hangs.wait();
    kept.push_back(0);
  });
  const TimePoint before = now();
  for (int i = 1; i < 1000; ++i)
    keeping->run([&kept, i](StateKeeper&, const Say&) { kept.push_back(i); });
  CHECK(now() - before < kTestPatience);  // each alone would take its moment
  well.set_value();
  keeping.reset();
  REQUIRE(kept.size() == 1000);
  CHECK(kept.back() == 999);
}

TEST_CASE("a disk that hangs for long costs what can be found out again, and nothing else") {
  std::optional<KeeperThread> keeping(std::in_place, std::make_shared<IdleKeeper>(),
                                      KeeperThread::Options{kAMoment, kTestPatience});
  std::promise<void> begun, well;
  constexpr int kMany = 3 * static_cast<int>(KeeperThread::kSpareTasksMax);
  int needed = 0, spare = 0;  // of the thread, until it has ended
  keeping->run([&begun, hangs = well.get_future().share()](StateKeeper&, const Say&) {
    begun.set_value();
    hangs.wait();
  });
  begun.get_future().wait();
  for (int i = 0; i < kMany; ++i) {
    keeping->run_spare([&spare](StateKeeper&, const Say&) { ++spare; });
    keeping->run([&needed](StateKeeper&, const Say&) { ++needed; });
  }
  well.set_value();
  keeping.reset();
  CHECK(needed == kMany);
  CHECK(spare == static_cast<int>(KeeperThread::kSpareTasksMax));
}

TEST_CASE("what hangs longer than its head lives touches nothing of it, and tells nobody") {
  auto keeper = std::make_shared<IdleKeeper>();
  const std::weak_ptr<IdleKeeper> lives = keeper;
  std::promise<void> begun, well;
  std::promise<Say> over;
  int told = 0, later = 0;
  std::optional<KeeperThread> keeping(std::in_place, std::move(keeper),
                                      KeeperThread::Options{kAMoment, kAMoment});
  keeping->run([&, hangs = well.get_future().share()](StateKeeper& k, const Say& tell) {
    tell([&] { ++told; });
    begun.set_value();
    hangs.wait();
    k.keep_next_node(7);
    tell([&] { ++told; });
    over.set_value(tell);
  });
  keeping->run([&](StateKeeper&, const Say&) { ++later; });
  begun.get_future().wait();
  keeping.reset();
  CHECK(!lives.expired());  // its thread is still at work with it
  well.set_value();
  const Say kept = over.get_future().get();
  const TimePoint patience = now() + kTestPatience;
  while (!lives.expired() && now() < patience) std::this_thread::yield();
  CHECK(lives.expired());
  kept([&] { ++told; });
  CHECK(told == 1);
  CHECK(later == 0);
}
