#include "actors/supervisor/experts_text.h"

#include <doctest/doctest.h>

#include <limits>

namespace troupe {

TEST_CASE("placement and load are JSON, layer by layer") {
  CHECK(placement_text({}) == "[]");
  CHECK(load_text({}) == "[]");
  const DeviceRef a{NodeId{1}, 0}, b{NodeId{12}, 3};
  CHECK(placement_text({{3, {{0, a}, {255, b}, {0, b}}}, {4, {}}, {5, {{7, a}}}}) ==
        R"([{"layer":3,"slots":[{"expert":0,"device":"node-1/0"},)"
        R"({"expert":255,"device":"node-12/3"},{"expert":0,"device":"node-12/3"}]},)"
        R"({"layer":4,"slots":[]},{"layer":5,"slots":[{"expert":7,"device":"node-1/0"}]}])");
  CHECK(load_text({{3, {12.4f, 0, 1e7f}}, {9, {}}}) ==
        R"([{"layer":3,"tokens":[12,0,10000000]},{"layer":9,"tokens":[]}])");
  constexpr float kOdd = std::numeric_limits<float>::infinity();
  CHECK(load_text({{0, {kOdd, -kOdd, std::numeric_limits<float>::quiet_NaN()}}}) ==
        R"([{"layer":0,"tokens":[0,0,0]}])");
}

}  // namespace troupe
