#include "actors/router/finished_requests.h"

#include <doctest/doctest.h>

#include <vector>

using namespace troupe;

namespace {

constexpr std::uint64_t kLoud = 1, kQuiet = 2, kHeavy = 3;
constexpr std::size_t kTenth = limits::kFinishedWordsMax / 10;

/// Those that go, in their order, so that the rest has room.
std::vector<std::uint64_t> gone(FinishedRequests& finished, TimePoint now) {
  std::vector<std::uint64_t> all;
  while (const auto next = finished.next_to_go(now)) {
    all.push_back(*next);
    finished.remove(*next);
  }
  return all;
}

}  // namespace

TEST_CASE("finished answers: who floods makes room for its own, by weight") {
  FinishedRequests finished(KeyShares({{kLoud, 1, 0}, {kQuiet, 1, 0}, {kHeavy, 3, 0}}));
  std::uint64_t next = 1;
  const auto add = [&](std::uint64_t owner, int count) {
    for (int i = 0; i < count; ++i) finished.add(next++, owner, kTenth, TimePoint{});
    return gone(finished, TimePoint{});
  };
  using Gone = std::vector<std::uint64_t>;
  CHECK(add(kQuiet, 2) == Gone{});           // 1, 2: the oldest of all
  CHECK(add(kLoud, 10) == Gone{3, 4});      // 3 to 12
  CHECK(add(kLoud, 3) == Gone{5, 6, 7});    // up to 15
  CHECK(add(kHeavy, 6) == Gone{8, 9, 10, 11, 12, 13});  // up to 21; now 2, 2 and 6
  CHECK(add(kHeavy, 1) == Gone{16});
  CHECK(add(kQuiet, 1) == Gone{1});
  CHECK(finished.size() == 10);
}

TEST_CASE("finished answers: all go when their time is over, the oldest first") {
  FinishedRequests finished;
  const TimePoint later = TimePoint{} + std::chrono::minutes(1);
  finished.add(1, kLoud, 5, TimePoint{});
  finished.add(2, kQuiet, 5, TimePoint{});
  finished.add(3, kLoud, 5, later);
  CHECK(finished.next_end() == TimePoint{} + limits::kFinishedKept);
  CHECK(gone(finished, TimePoint{} + limits::kFinishedKept) == std::vector<std::uint64_t>{1, 2});
  CHECK(finished.next_end() == later + limits::kFinishedKept);
  CHECK(gone(finished, later + limits::kFinishedKept) == std::vector<std::uint64_t>{3});
  CHECK(!finished.next_end());
}
