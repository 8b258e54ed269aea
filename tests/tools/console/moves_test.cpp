#include "tools/troupe/console/moves.h"

#include <doctest/doctest.h>

#include <utility>

#include "tests/tools/console/sample.h"

namespace troupe::console {
namespace {

using namespace std::chrono_literals;

/// One layer; a pair is an expert and the number of its device.
ExpertFacts placed(std::vector<std::pair<int, int>> slots, std::vector<std::string> devices) {
  ExpertFacts experts;
  experts.experts = 4;
  experts.devices = std::move(devices);
  LayerFacts layer;
  layer.layer = 3;
  for (const auto& [expert, device] : slots)
    layer.slots.push_back({expert, static_cast<std::uint32_t>(device)});
  experts.layers.push_back(std::move(layer));
  return experts;
}

const std::vector<std::string> kDevices{"a/0", "b/0", "c/0"};

}  // namespace

TEST_CASE("the difference of two placements is told as moves") {
  const ExpertFacts before = placed({{0, 0}, {1, 0}, {1, 1}, {2, 1}}, kDevices);
  struct Case {
    std::vector<std::pair<int, int>> after;
    std::vector<Move> moves;
  };
  const Case cases[] = {
      {{{0, 0}, {1, 0}, {1, 1}, {2, 1}}, {}},
      {{{0, 2}, {1, 0}, {1, 1}, {2, 1}}, {{3, 0, "a/0", "c/0"}}},
      {{{0, 0}, {1, 0}, {2, 1}}, {{3, 1, "b/0", ""}}},
      {{{0, 0}, {0, 1}, {1, 0}, {1, 1}, {2, 1}}, {{3, 0, "", "b/0"}}},
      {{{0, 1}, {1, 0}, {1, 2}, {2, 0}},
       {{3, 0, "a/0", "b/0"}, {3, 1, "b/0", "c/0"}, {3, 2, "b/0", "a/0"}}},
      {{{3, 2}},
       {{3, 0, "a/0", ""},
        {3, 1, "a/0", ""},
        {3, 1, "b/0", ""},
        {3, 2, "b/0", ""},
        {3, 3, "", "c/0"}}},
  };
  for (const Case& c : cases) CHECK(moves_between(before, placed(c.after, kDevices)) == c.moves);
}

TEST_CASE("devices are told apart by name, not by their place in a status") {
  CHECK(moves_between(placed({{0, 0}, {1, 1}}, {"a/0", "b/0"}),
                      placed({{0, 1}, {1, 0}}, {"b/0", "a/0"}))
            .empty());
  CHECK(moves_between(placed({{0, 0}}, {"a/0"}), placed({{0, 0}}, {"b/0"})) ==
        std::vector<Move>{{3, 0, "a/0", "b/0"}});
}

TEST_CASE("forming and losing a cluster are no moves") {
  CHECK(moves_between({}, placed({{0, 0}}, kDevices)).empty());
  CHECK(moves_between(placed({{0, 0}}, kDevices), {}).empty());
}

TEST_CASE("moves are shown for a while and counted for good") {
  MoveLog log;
  const TimePoint start{100s};
  const ExpertFacts here = placed({{1, 0}}, kDevices), there = placed({{1, 1}}, kDevices);
  log.add(here, there, start);
  log.add(there, here, start + 5s);
  CHECK(log.recent().size() == 2);
  CHECK(log.moved(3, 4) == std::vector<bool>{false, true, false, false});
  CHECK(log.moved(2, 4) == std::vector<bool>(4));
  CHECK(log.moved(3, 1) == std::vector<bool>(1));
  log.forget_old(start + 9s);
  CHECK(log.recent().size() == 1);
  log.forget_old(start + 60s);
  CHECK(log.recent().empty());
  CHECK(log.total() == 2);
}

}  // namespace troupe::console
