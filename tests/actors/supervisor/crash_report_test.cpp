#include <doctest/doctest.h>

#include "tests/actors/supervisor/head_fixture.h"

namespace troupe {
namespace {

using namespace testing;

TEST_CASE("word of a crash reaches the Router, before the loss is noticed or after it") {
  Head h;
  const auto a = h.join(1, good_join(100));
  h.from(*a, Loaded{h.s.placement()->version});
  REQUIRE(h.join(2, good_join(101)));
  h.up(3);
  h.from_session(3, ClientHello{kProtocol, "troupe crash-report"});
  const CrashReport report{7, a->node, a->incarnation, 11, "SIGSEGV"};
  bool before = false;
  SUBCASE("before: that life is fenced at once") { before = true; }
  SUBCASE("after") {
    h.down(1);
    REQUIRE(h.router_hears<LifeLost>());
    CHECK(h.router_hears<LifeLost>()->life == a->incarnation);
    CHECK(h.router_hears<LifeLost>()->replicas.size() == 1);
  }
  h.from_session(3, report);
  if (before) {
    CHECK(h.router_hears<LifeLost>()->life == a->incarnation);
    CHECK(!h.s.members().contains(a->node));
    CHECK(contains(h.s.gone().back().lost_reason, "SIGSEGV"));
  }
  REQUIRE(h.router_hears<LifeCrashed>());
  CHECK(h.router_hears<LifeCrashed>()->life == a->incarnation);
  CHECK(contains(h.router_hears<LifeCrashed>()->why, "SIGSEGV"));
  CHECK(h.sent<OperationProgress>()->query == 7);
  CHECK(!h.sent<OperationProgress>()->error);
}

TEST_CASE("word of a crash that fits no life changes nothing") {
  Head h;
  const auto a = h.join(1, good_join(100));
  h.up(3);
  h.from_session(3, ClientHello{kProtocol, "troupe crash-report"});
  h.from_session(3, CrashReport{7, a->node, Incarnation{a->incarnation.value + 9}, 11, "SIGSEGV"});
  CHECK(h.s.members().contains(a->node));
  CHECK(!h.router_hears<LifeCrashed>());
  CHECK(h.sent<OperationProgress>()->error);
  // A member cannot say it of another one.
  h.from(*a, CrashReport{7, a->node, a->incarnation, 11, "SIGSEGV"});
  CHECK(!h.router_hears<LifeCrashed>());
}

}  // namespace
}  // namespace troupe
