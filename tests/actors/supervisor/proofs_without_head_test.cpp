#include <doctest/doctest.h>

#include "tests/actors/supervisor/proving_cluster.h"

namespace troupe {
using namespace testing;

TEST_CASE("a head without weights reads nothing, and two nodes confirm and decide without it") {
  SupervisorOptions o = options();
  o.head_reads = false;
  ProvingCluster alone(1, o);
  alone.reports(0, proof(1));
  alone.all_loaded();
  CHECK(alone.activated);
  for (int i = 0; i < 5; ++i) {
    alone.wait(1s);
    alone.note();
    alone.renew();
  }
  CHECK_FALSE(alone.kept.at("t").confirmed);
  CHECK(alone.reads.empty());

  ProvingCluster c(3, o);
  c.reports(0, proof(666));
  c.reports(1, proof(1));
  CHECK(contains(c.newest("proofs"), "read again"));
  c.reports(0, proof(666), true);
  c.reports(1, proof(1), true);
  CHECK(c.member(0));
  c.reports(2, proof(1), true);
  CHECK_FALSE(c.member(0));
  CHECK(c.kept.at("t").proof.stored == proof(1).stored);
  CHECK(c.reads.empty());
}

}  // namespace troupe
