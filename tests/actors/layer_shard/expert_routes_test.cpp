#include "actors/layer_shard/expert_routes.h"

#include <doctest/doctest.h>

#include <map>
#include <set>
#include <vector>

#include "actors/layer_shard/expert_counter.h"

using namespace troupe;

TEST_CASE("the own copy is asked, else the one with the least to do, avoided ones last") {
  const DeviceRef kOwn{NodeId{1}, 0}, kFirst{NodeId{2}, 0}, kSecond{NodeId{3}, 0};
  const std::vector<DeviceRef> all = {kOwn, kFirst, kSecond};
  const DeviceRef elsewhere{NodeId{9}, 0};
  const std::set<DeviceRef> none;
  const auto chosen = [&](const DeviceRef& self, std::uint64_t turn,
                          const std::set<DeviceRef>& excluded, const std::set<DeviceRef>& avoided,
                          const std::map<DeviceRef, std::uint64_t>& load) {
    return choose_copy(all, turn, {self, excluded, avoided, load});
  };
  CHECK(chosen(kOwn, 7, none, none, {{kOwn, 50}}) == kOwn);
  CHECK(chosen(elsewhere, 0, none, none, {}) == kOwn);
  CHECK(chosen(elsewhere, 1, none, none, {}) == kFirst);
  CHECK(chosen(elsewhere, 2, none, none, {}) == kSecond);
  CHECK(chosen(elsewhere, 0, none, none, {{kOwn, 2}, {kFirst, 3}}) == kSecond);
  CHECK(chosen(elsewhere, 1, none, none, {{kFirst, 1}}) == kSecond);
  CHECK(chosen(elsewhere, 0, {kOwn}, none, {}) == kFirst);
  CHECK(chosen(elsewhere, 0, none, {kOwn, kFirst}, {{kSecond, 99}}) == kSecond);
  CHECK(chosen(kOwn, 0, {kSecond}, {kOwn}, {}) == kFirst);
  CHECK(chosen(elsewhere, 0, {kSecond}, {kOwn, kFirst}, {{kOwn, 1}}) == kFirst);
  CHECK(!chosen(elsewhere, 0, {kOwn, kFirst, kSecond}, none, {}));
  CHECK(!choose_copy({}, 0, {elsewhere, none, none, {}}));
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
