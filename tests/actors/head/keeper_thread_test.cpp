#include "actors/head/keeper_thread.h"

#include <doctest/doctest.h>

#include <future>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/clock.h"
#include "tests/patience.h"

using namespace troupe;

TEST_CASE("what is kept is there when run() comes back, in its order") {
  KeeperThread keeper;
  std::vector<int> kept;
  for (int i = 0; i < 100; ++i) {
    keeper.run([&kept, i] { kept.push_back(i); });
    REQUIRE(kept.size() == static_cast<std::size_t>(i + 1));
  }
  CHECK(kept.back() == 99);
}

TEST_CASE("a disk that hangs holds nobody up, and all is kept when it goes on") {
  std::optional<KeeperThread> keeper(std::in_place);
  std::promise<void> well;
  std::vector<int> kept;  // of the thread, until it has ended
  keeper->run([&kept, hangs = well.get_future().share()] {
    hangs.wait();
    kept.push_back(0);
  });
  const TimePoint before = now();
  for (int i = 1; i < 1000; ++i) keeper->run([&kept, i] { kept.push_back(i); });
  CHECK(now() - before < kTestPatience);  // each alone would take its moment
  well.set_value();
  keeper.reset();
  REQUIRE(kept.size() == 1000);
  CHECK(kept.back() == 999);
}
