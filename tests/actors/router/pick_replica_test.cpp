#include "actors/router/pick_replica.h"

#include <doctest/doctest.h>

#include <vector>

using namespace troupe;

TEST_CASE("the replica with the least to do is picked, ties to the lowest id") {
  CHECK(!pick_replica({}));
  CHECK(pick_replica(std::vector<ReplicaLoad>{{4, 100}}) == 4);
  CHECK(pick_replica(std::vector<ReplicaLoad>{{0, 5}, {1, 4}, {2, 9}}) == 1);
  CHECK(pick_replica(std::vector<ReplicaLoad>{{3, 0}, {1, 0}, {2, 7}}) == 1);
  // Slow ones, and those that refused it, only if there is no other.
  CHECK(pick_replica(std::vector<ReplicaLoad>{{0, 5, false, true}, {1, 90}}) == 1);
  CHECK(pick_replica(std::vector<ReplicaLoad>{{0, 5, true, false}, {1, 90, false, true}}) == 1);
  CHECK(pick_replica(std::vector<ReplicaLoad>{{0, 5, true, true}, {1, 90, true, false}}) == 1);
  CHECK(pick_replica(std::vector<ReplicaLoad>{{7, 5, true, true}}) == 7);
}
