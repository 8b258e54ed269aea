#include <doctest/doctest.h>

#include "tests/actors/supervisor/head_fixture.h"

namespace troupe {
namespace {

using namespace testing;

TEST_CASE("a member that is heard but hears nothing is lost within a lease") {
  Head h;
  const auto a = h.join(1, good_join(1));
  std::uint64_t n = 0;
  const auto renew = [&](std::uint64_t heard) {
    h.from(*a, Renew{++n, {DeviceReport{}}, {}, {}, heard});
  };
  for (int i = 0; i < 8; ++i, h.wait(limits::kRenewEvery)) renew(n);
  CHECK(h.s.members().size() == 1);
  const std::uint64_t heard = n;
  SUBCASE("when none of its answers comes") {
    const TimePoint cut = h.now;
    while (!h.s.members().empty() && h.now < cut + 2 * limits::kLease) {
      renew(heard);
      h.wait(limits::kRenewEvery);
    }
    CHECK(h.s.members().empty());
    CHECK(h.now - cut <= limits::kLease + 2 * limits::kRenewEvery);
  }
  SUBCASE("not when its answers come late") {
    for (int i = 0; i < 20; ++i, h.wait(limits::kRenewEvery)) renew(n - 2);
    CHECK(h.s.members().size() == 1);
  }
  SUBCASE("not when the head stood still while it asked") {
    h.now += 3s;
    for (int i = 0; i < 12; ++i) renew(heard);
    CHECK(h.s.members().size() == 1);
  }
  SUBCASE("not when the head stood still while one was on its way") {
    renew(heard);
    h.now += 3s;
    for (int i = 0; i < 12; ++i) renew(heard);
    h.wait(limits::kRenewEvery);
    renew(n);
    CHECK(h.s.members().size() == 1);
  }
  SUBCASE("not when it is older and never says what it heard") {
    const auto old = h.join(2, good_join(2));
    for (std::uint64_t i = 1; i < 40; ++i) {
      h.from(*old, Renew{i, {DeviceReport{}}, {}});
      renew(n);
      h.wait(limits::kRenewEvery);
    }
    CHECK(h.s.members().size() == 2);
  }
}

TEST_CASE("a head that stood still itself lets all leases begin again") {
  Head h;
  const auto a = h.join(1, good_join(1));
  h.pass(limits::kLease / 2);
  SUBCASE("and notices when it is woken") { h.wait(3s); }
  SUBCASE("and notices when something comes") {
    h.now += 3s;
    h.from(*a, Renew{1, {DeviceReport{}}, {}});
    CHECK(h.sent<Renewed>());
  }
  CHECK(h.s.members().size() == 1);
  CHECK(h.s.counters().lost == 0);
  CHECK(h.s.events().back().kind == "head_paused");
  h.pass(limits::kLease - 1ms);
  CHECK(h.s.members().size() == 1);
  h.pass(1ms);
  CHECK(h.s.members().empty());
}

}  // namespace
}  // namespace troupe
