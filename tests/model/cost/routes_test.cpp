// How rows reach experts under a placement.

#include "model/cost/routes.h"

#include <doctest/doctest.h>

#include <cmath>

namespace troupe {
namespace {

const DeviceRef kA{NodeId{1}, 0}, kB{NodeId{1}, 1}, kC{NodeId{2}, 0};

TEST_CASE("two experts on three devices, one of them twice") {
  // Every row chooses expert 0, and expert 1 half of the time.
  const LayerExperts layer{0, {{0, kA}, {0, kC}, {1, kB}}};
  const LayerRoutes routes(layer, {1.0, 0.5}, {kA, kB});
  const auto& parts = routes.parts();
  REQUIRE(parts.size() == 3);
  // kA asks itself for expert 0; kB asks kA and kC half of the time each.
  CHECK(parts.at(kA).pairs == doctest::Approx(1.5));
  CHECK(parts.at(kC).pairs == doctest::Approx(0.5));
  CHECK(parts.at(kB).pairs == doctest::Approx(1.0));
  CHECK(routes.imbalance() == doctest::Approx(1.5));
  CHECK(routes.leaves_device());
  CHECK(LayerRoutes::hits(parts.at(kA), 1) == doctest::Approx(1));
  CHECK(LayerRoutes::hits(parts.at(kC), 1) == doctest::Approx(0.5));
  CHECK(LayerRoutes::hits(parts.at(kC), 3) == doctest::Approx(1 - 0.125));
  // Two askers, each half of the time.
  CHECK(LayerRoutes::hits(parts.at(kB), 2) == doctest::Approx(1 - std::pow(0.5, 4)));

  // Rows of 100 bytes: what leaves is a row, what comes back an output.
  const WireBytes a = LayerRoutes::wire(parts.at(kA), 10, 100);
  CHECK(a.network_out == 0);
  CHECK(a.network_in == 0);
  CHECK(a.link_out == doctest::Approx(10 * 100 * (0.5 + 0.5)));  // to expert 1; of expert 0
  CHECK(a.link_in == doctest::Approx(10 * 100 * (0.5 + 0.5)));
  const WireBytes c = LayerRoutes::wire(parts.at(kC), 10, 100);
  CHECK(c.network_in == doctest::Approx(500));
  CHECK(c.network_out == doctest::Approx(500));
  CHECK(c.link_in == 0);
}

TEST_CASE("a row goes once to a device, and an output comes back for each expert") {
  const LayerExperts layer{0, {{0, kA}, {1, kA}, {2, kC}, {3, kC}}};
  const LayerRoutes routes(layer, {1.0, 1.0, 1.0, 1.0}, {kA});
  const WireBytes a = LayerRoutes::wire(routes.parts().at(kA), 1, 10);
  CHECK(a.network_out == doctest::Approx(10));
  CHECK(a.network_in == doctest::Approx(20));
  CHECK(routes.parts().at(kA).questions == doctest::Approx(1));
}

TEST_CASE("nothing leaves a device that has everything") {
  const LayerExperts layer{0, {{0, kA}, {1, kA}, {0, kB}, {1, kB}}};
  const LayerRoutes routes(layer, {1.0, 0.25}, {kA, kB});
  CHECK(!routes.leaves_device());
  CHECK(routes.imbalance() == doctest::Approx(1));
  CHECK(routes.parts().at(kA).pairs == doctest::Approx(1.25));
  CHECK(LayerRoutes::wire(routes.parts().at(kB), 5, 10).link_out == 0);
}

}  // namespace
}  // namespace troupe
