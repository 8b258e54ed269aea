#include "actors/metrics/device_loads.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>

#include "tests/actors/metrics/slot.h"

using namespace troupe;
using namespace std::chrono_literals;

namespace {

constexpr std::uint8_t kUnknown = DeviceLoads::kUnknown;
constexpr DeviceRef kFirst{NodeId{1}, 0}, kSecond{NodeId{1}, 1};

using Percent = std::vector<std::uint8_t>;

}  // namespace

TEST_CASE("a slot's load is the mean of what the device said in it") {
  DeviceLoads loads;
  loads.add(kFirst, 0.2f, slot(0));
  loads.add(kFirst, 0.4f, slot(0) + 1s);
  loads.add(kSecond, 1, slot(0));
  CHECK(loads.loads(slot(0) + 4s, 3).empty());  // it is not over
  loads.add(kFirst, 0.5f, slot(2));
  const auto told = loads.loads(slot(3), 4);
  REQUIRE(told.size() == 2);
  CHECK(told[0].device == kFirst);
  CHECK(told[0].percent == Percent{kUnknown, 30, kUnknown, 50});
  CHECK(told[1].percent == Percent{kUnknown, 100, kUnknown, kUnknown});
}

TEST_CASE("an hour is kept, and of an hour before nothing is left") {
  DeviceLoads loads;
  constexpr int kSlots = static_cast<int>(RequestHistory::kSlots);
  for (int i = 0; i < kSlots + 3; ++i)
    loads.add(kFirst, static_cast<float>(i % 100) / 100, slot(i));
  auto told = loads.loads(slot(kSlots + 3), RequestHistory::kSlots);
  REQUIRE(told.size() == 1);
  REQUIRE(told[0].percent.size() == RequestHistory::kSlots);
  CHECK(told[0].percent.front() == 3);
  CHECK(told[0].percent.back() == (kSlots + 2) % 100);
  // The device is silent for half an hour, then for more than one.
  loads.add(kFirst, 1, slot(kSlots + 363));
  told = loads.loads(slot(kSlots + 364), RequestHistory::kSlots);
  CHECK(told[0].percent[1] == 365 % 100);
  CHECK(told[0].percent[400] == kUnknown);
  CHECK(told[0].percent.back() == 100);
  CHECK(loads.loads(slot(3 * kSlots), RequestHistory::kSlots).empty());
  loads.add(kFirst, 0, slot(4 * kSlots));
  told = loads.loads(slot(4 * kSlots + 1), 2);
  CHECK(told[0].percent == Percent{kUnknown, 0});
}

TEST_CASE("one more than can be kept takes the place of one that is not heard of") {
  DeviceLoads loads;
  for (int at = 0; at < 3; ++at)
    for (std::uint32_t i = 0; i < DeviceLoads::kDevicesMax; ++i)
      if (i != 5 || at == 0) loads.add({NodeId{i}, 0}, 0.5f, slot(at));
  const auto has = [&](std::uint32_t node, int at) {
    return std::ranges::any_of(loads.loads(slot(at), 4), [&](const DeviceLoads::Load& load) {
      return load.device.node == NodeId{node};
    });
  };
  CHECK(has(5, 3));
  loads.add({NodeId{9999}, 0}, 1, slot(2));
  CHECK(has(9999, 3));
  CHECK_FALSE(has(5, 3));
  loads.add({NodeId{9998}, 0}, 1, slot(2));  // all that are kept are heard of
  CHECK_FALSE(has(9998, 3));
  for (const auto& load : loads.loads(slot(3), 3))
    if (load.device.node != NodeId{9999}) CHECK(load.percent == Percent{50, 50, 50});
}
