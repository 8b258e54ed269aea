#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "tests/actors/supervisor/head_fixture.h"

namespace troupe {
namespace {

using namespace testing;

TEST_CASE("a flood of one kind of event is told by its first ones and its number") {
  Head h;
  std::size_t told = 0;
  REQUIRE(h.join(1, good_join(100)));
  for (int i = 0; i < 10'000; ++i) {
    h.log(std::to_string(i));
    told += all<EventNoted>(h.last).size();
  }
  CHECK(told == kEventsOfKindMax);
  CHECK(h.s.events().front().kind == "node_joined");
  CHECK(h.s.events().back().text == "A worker at peer did not join: 63");
  REQUIRE(h.last.wake());
  h.wait(kEventSpan);
  CHECK(std::any_of(h.s.events().begin(), h.s.events().end(), [](const ClusterEvent& e) {
    return e.text ==
           "… and 9936 more like this in the last minute; the last: A worker at peer did not join: "
           "9999";
  }));
  const auto noted = all<EventNoted>(h.last);  // beside the member's loss
  CHECK(std::count_if(noted.begin(), noted.end(),
                      [](const EventNoted& e) { return e.event.kind == "refused"; }) == 1);
  h.log("again");
  CHECK(h.s.events().back().text == "A worker at peer did not join: again");
}

TEST_CASE("a head that stands still again and again says so once a minute") {
  Head h;
  const auto a = h.join(1, good_join(1));
  const auto paused = [&h] {
    std::vector<std::string> texts;
    for (const ClusterEvent& e : h.s.events())
      if (e.kind == "head_paused") texts.push_back(e.text);
    return texts;
  };
  const auto pauses = [&](int times) {
    for (int i = 0; i < times; ++i, h.wait(1s)) {
      h.now += 2s;
      h.from(*a, Renew{});
    }
  };
  pauses(10);
  CHECK(paused().size() == 1);
  pauses(40);  // 150 s in all
  REQUIRE(paused().size() == 3);
  CHECK(paused().front().starts_with("The head stood still for "));
  CHECK(paused().back().starts_with("… and "));
  CHECK(h.s.members().size() == 1);
}

TEST_CASE("a kind that floods for hours washes nothing else out of the log") {
  EventLog log(TimePoint{}, 0);
  TimePoint now{};
  const std::size_t others = limits::kClusterEventsMax / 4;
  for (std::size_t i = 0; i < others; ++i) (void)log.add(i % 2 ? "node_lost" : "ready", "x", now);
  for (int minute = 0; minute < 200; ++minute) {
    for (int i = 0; i < 10'000; ++i) (void)log.add("refused", std::to_string(i), now);
    now += kEventSpan;
    CHECK(log.sum_up(now).size() == 1);
    REQUIRE(log.violation() == "");
  }
  CHECK(log.events().size() == limits::kClusterEventsMax);
  const auto is_other = [](const ClusterEvent& e) { return e.kind != "refused"; };
  CHECK(std::count_if(log.events().begin(), log.events().end(), is_other) ==
        static_cast<std::ptrdiff_t>(others));
}

}  // namespace
}  // namespace troupe
