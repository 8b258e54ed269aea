#include "actors/layer_shard/expert_routes.h"

#include <doctest/doctest.h>

#include <optional>
#include <utility>
#include <vector>

#include "actors/layer_shard/expert_counter.h"

using namespace troupe;

TEST_CASE("copies are found by layer and expert, whatever order the placement has") {
  const DeviceRef kA{NodeId{1}, 0}, kB{NodeId{1}, 1}, kC{NodeId{7}, 0};
  Placement placement;
  placement.version = PlacementVersion{3};
  placement.experts = {{2, {{1, kC}, {0, kB}, {1, kA}}}, {5, {{3, kB}, {3, kA}, {3, kC}}}};
  const ExpertRoutes routes(placement);
  CHECK(routes.version() == PlacementVersion{3});
  const auto found = [&](std::int32_t layer, std::int32_t expert) {
    std::vector<DeviceRef> devices;
    for (const std::uint32_t number : routes.copies(layer, expert)) {
      devices.push_back(routes.devices()[number]);
      CHECK(routes.number_of(devices.back()) == number);
    }
    return devices;
  };
  using Found = std::vector<DeviceRef>;
  CHECK(found(2, 0) == Found{kB});
  CHECK(found(2, 1) == Found{kA, kC});
  CHECK(found(5, 3) == Found{kA, kB, kC});
  for (const auto& [layer, expert] :
       {std::pair{2, 2}, {2, 3}, {2, 4}, {0, 0}, {3, 1}, {5, 0}, {5, 4}, {6, 0}, {-1, 0}, {5, -1}})
    CHECK(found(layer, expert).empty());
  CHECK(!routes.number_of({NodeId{1}, 2}));
  CHECK(ExpertRoutes(Placement{}).copies(0, 0).empty());
}

TEST_CASE("the own copy is asked, else the one with the least to do, avoided ones last") {
  // Three devices; bits say which of them are excluded or avoided.
  const std::vector<std::uint32_t> all = {0, 1, 2};
  const auto chosen = [&](std::optional<std::uint32_t> self, std::uint64_t turn, unsigned excluded,
                          unsigned avoided, const std::vector<std::uint64_t>& load) {
    std::vector<std::uint8_t> out, last;
    for (unsigned d = 0; d < 3; ++d) {
      out.push_back(excluded >> d & 1);
      last.push_back(avoided >> d & 1);
    }
    return choose_copy(all, turn, {self, out, last, load});
  };
  const std::vector<std::uint64_t> idle = {0, 0, 0};
  CHECK(chosen(0, 7, 0, 0, {50, 0, 0}) == 0);
  CHECK(chosen({}, 0, 0, 0, idle) == 0);
  CHECK(chosen({}, 1, 0, 0, idle) == 1);
  CHECK(chosen({}, 2, 0, 0, idle) == 2);
  CHECK(chosen({}, 3, 0, 0, idle) == 0);
  CHECK(chosen({}, 0, 0, 0, {2, 3, 0}) == 2);
  CHECK(chosen({}, 1, 0, 0, {0, 1, 0}) == 2);
  CHECK(chosen({}, 0, 0b001, 0, idle) == 1);
  CHECK(chosen({}, 0, 0, 0b011, {0, 0, 99}) == 2);
  CHECK(chosen(0, 0, 0b100, 0b001, idle) == 1);
  CHECK(chosen({}, 0, 0b100, 0b011, {1, 0, 0}) == 1);
  CHECK(!chosen({}, 0, 0b111, 0, idle));
  CHECK(!choose_copy({}, 0, {0, {}, {}, {}}));
}

TEST_CASE("what the gates choose is counted until it is taken") {
  ExpertCounter counter(3);
  CHECK(!counter.take());
  const std::int32_t first[] = {0, 2, 2}, second[] = {4};
  counter.add(5, first);
  counter.add(3, second);
  counter.add(5, first);
  const auto counts = counter.take();
  REQUIRE(counts);
  REQUIRE(counts->layers.size() == 2);
  CHECK(counts->layers[0].layer == 3);
  CHECK(counts->layers[0].tokens == std::vector<std::uint32_t>{0, 0, 0, 0, 1});
  CHECK(counts->layers[1].tokens == std::vector<std::uint32_t>{2, 0, 4});
  CHECK(!counter.take());
}
