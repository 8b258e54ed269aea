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

TEST_CASE("a replica that has computed the beginning is picked unless it has much more to do") {
  struct Case {
    std::vector<ReplicaLoad> replicas;
    std::uint32_t picked;
  };
  const bool no = false, yes = true;
  const Case cases[] = {
      {{{0, 0, no, no, 0}, {1, 0, no, no, 32}}, 1},
      {{{0, 100, no, no, 64}, {1, 0, no, no, 0}}, 0},   // worth 256
      {{{0, 300, no, no, 64}, {1, 0, no, no, 0}}, 1},
      {{{0, 300, no, no, 64}, {1, 50, no, no, 0}}, 0},  // not more busy by as much
      {{{0, 256, no, no, 64}, {1, 0, no, no, 0}}, 1},   // as good: who is less busy
      {{{0, 0, no, no, 64}, {1, 0, no, no, 96}}, 1},    // the longer one
      {{{0, 9000, no, no, 2048}, {1, 9000, no, no, 0}, {2, 8000, no, no, 0}}, 0},
      {{{0, 0, no, yes, 4096}, {1, 500, no, no, 0}}, 1},
      {{{0, 0, yes, no, 4096}, {1, 500, no, no, 0}}, 1},
  };
  for (const Case& c : cases) {
    CAPTURE(&c - cases);
    CHECK(pick_replica(c.replicas) == c.picked);
  }
}
