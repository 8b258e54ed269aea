#include "runtime/flat.h"

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <set>
#include <vector>

using namespace troupe;

TEST_CASE("flat sets and maps hold what the standard ones hold, in their order") {
  std::mt19937 random(1);
  std::set<int> keys;
  std::map<int, int> values;
  FlatSet<int> flat_keys;
  FlatMap<int, int> flat_values;
  for (int i = 0; i < 2000; ++i) {
    const int key = static_cast<int>(random() % 40);
    if (random() % 2 == 0) {
      CHECK(flat_keys.insert(key) == keys.insert(key).second);
      flat_values[key] += i;
      values[key] += i;
    } else {
      CHECK(flat_keys.erase(key) == (keys.erase(key) > 0));
      const auto it = flat_values.find(key);
      REQUIRE((it != flat_values.end()) == values.contains(key));
      if (it != flat_values.end()) flat_values.erase(it);
      values.erase(key);
    }
    REQUIRE(flat_keys.contains(key) == keys.contains(key));
    REQUIRE(flat_values.contains(key) == values.contains(key));
    REQUIRE(std::vector(flat_keys.begin(), flat_keys.end()) ==
            std::vector(keys.begin(), keys.end()));
    REQUIRE(std::map<int, int>(flat_values.begin(), flat_values.end()) == values);
    REQUIRE(flat_values.size() == values.size());
  }
}
