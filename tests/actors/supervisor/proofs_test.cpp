#include <doctest/doctest.h>

#include "tests/actors/supervisor/proving_cluster.h"

// Who is wrong when two nodes read a tensor otherwise, or pack it otherwise.

namespace troupe {
using namespace testing;

TEST_CASE("what one node reads is confirmed by the head before it serves") {
  ProvingCluster c;
  c.reports(0, proof(1));
  CHECK_FALSE(c.kept.at("t").confirmed);
  c.all_loaded();
  CHECK_FALSE(c.activated);
  c.head_reads(proof(1));
  CHECK(c.activated);
  CHECK(c.kept.at("t").confirmed);
  CHECK(c.s.state() == ClusterState::kReady);
}

TEST_CASE("what two nodes read alike is confirmed, and a head that cannot read holds nobody up") {
  ProvingCluster c;
  c.reports(0, proof(1));
  c.reports(1, proof(1));
  CHECK(c.kept.at("t").confirmed);
  c.all_loaded();
  c.head_reads(std::nullopt);
  CHECK(c.activated);

  ProvingCluster hangs;
  hangs.reports(0, proof(1));
  hangs.all_loaded();
  for (int i = 0; i < 12; ++i) {
    hangs.wait(1s);
    hangs.note();
    for (std::size_t w = 0; w < 3; ++w)
      hangs.from(
          hangs.at[w],
          Renew{static_cast<std::uint64_t>(i + 1), {{}}, {}, {}, static_cast<std::uint64_t>(i)});
  }
  CHECK(hangs.activated);
}

TEST_CASE("one of three nodes with another revision is taken out, wherever it comes in the order") {
  SUBCASE("first: the other two and the head outvote it") {
    ProvingCluster c;
    c.reports(0, proof(666));
    c.reports(1, proof(1));
    CHECK(contains(c.newest("proofs"), "read again"));
    CHECK_FALSE(c.activated);
    c.reports(0, proof(666), true);
    c.reports(1, proof(1), true);
    c.reports(2, proof(1), true);
    CHECK(c.member(0));
    c.head_reads(proof(1));  // as it confirms first reports
    c.head_reads(proof(1));  // past the page cache
    CHECK_FALSE(c.member(0));
    CHECK(contains(c.newest("proof_failed"), "t in model.safetensors on node-1"));
    CHECK(c.member(1));
    CHECK(c.kept.at("t").proof.stored == proof(1).stored);
    CHECK(c.kept.at("t").confirmed);
    CHECK(c.discarded.at(c.at[0].node) == std::set<std::string>{"t"});
  }
  SUBCASE("first, and nobody else loads that tensor: the head finds it") {
    ProvingCluster c;
    c.reports(0, proof(666));
    c.head_reads(proof(1));
    c.reports(0, proof(666), true);
    c.reports(1, proof(1), true);
    c.head_reads(proof(1));
    CHECK_FALSE(c.member(0));
    CHECK(c.kept.at("t").proof.stored == proof(1).stored);
  }
  SUBCASE("last: what is confirmed stays, and only the newcomer reads again") {
    ProvingCluster c;
    c.reports(0, proof(1));
    c.reports(1, proof(1));
    c.reads.clear();
    c.reports(2, proof(666));
    CHECK(c.reads.empty());
    c.all_loaded();
    CHECK_FALSE(c.activated);
    c.reports(2, proof(666), true);
    CHECK_FALSE(c.member(2));
    // The version that it had a part in never comes into force.
    CHECK_FALSE(c.activated);
    CHECK(contains(c.newest("proof_failed"), "node-3 is not what the cluster serves"));
    CHECK(c.member(0));
    CHECK(c.member(1));
  }
}

TEST_CASE("a node that misread its own file is told apart from one with another file") {
  ProvingCluster c;
  c.reports(0, proof(1));
  c.reports(1, proof(1));
  c.reports(2, proof(666));
  c.reports(2, proof(1), true);
  CHECK_FALSE(c.member(2));
  CHECK(contains(c.newest("proof_failed"), "memory or page cache is bad"));
}

TEST_CASE("who read what another dispute was decided for is not wrong") {
  ProvingCluster c;
  c.reports(0, proof(666));
  c.reports(0, proof(666, "u"));
  c.head_reads(proof(1));
  c.reports(1, proof(1));  // while the head's dispute is open
  c.reports(1, proof(1, "u"));
  c.reports(0, proof(666), true);
  SUBCASE("the head's is decided first") {
    c.head_reads(proof(1, "u"));
    c.head_reads(proof(1));
    c.reports(1, proof(1), true);
    c.head_reads(proof(1));
  }
  SUBCASE("its own is") {
    c.reports(1, proof(1), true);
    c.reports(2, proof(1), true);
    while (!c.reads.empty()) c.head_reads(proof(1));
  }
  CHECK_FALSE(c.member(0));
  CHECK(c.member(1));
  CHECK(c.member(2));
  CHECK(c.kept.at("t").proof.stored == proof(1).stored);
}

TEST_CASE("who packs a tensor otherwise first does not expel the others") {
  ProvingCluster c;
  c.reports(0, packed(666));
  CHECK_FALSE(c.kept.at("t").proof.packed);
  const PlacementVersion refused = c.version;
  c.reports(1, packed(1));
  // Read alike by two: the bytes are right, and how to pack them is not known yet.
  CHECK(c.kept.at("t").confirmed);
  CHECK(contains(c.newest("proof_failed"), "no third could decide"));
  for (std::size_t w = 0; w < 3; ++w) CHECK(c.member(w));
  CHECK(c.discarded ==
        std::map<NodeId, std::set<std::string>>{{c.at[0].node, {"t"}}, {c.at[1].node, {"t"}}});
  CHECK(c.version > refused);
  CHECK_FALSE(c.activated);
  SUBCASE("a third decides") {
    c.reports(2, packed(1));
    CHECK_FALSE(c.member(0));
    CHECK(contains(c.newest("proof_failed"), "node-1 read tensor t"));
  }
  SUBCASE("it reads again, and packs as the other did") {
    c.reports(0, packed(1));
    for (std::size_t w = 0; w < 3; ++w) CHECK(c.member(w));
  }
  CHECK(c.kept.at("t").proof == packed(1));
  CHECK(c.member(1));
  CHECK(c.member(2));
  // What is settled is settled.
  c.reports(2, packed(666));
  CHECK_FALSE(c.member(2));
  CHECK(c.member(1));
}

TEST_CASE("one that packs a hundred tensors otherwise fails one load, and goes once") {
  ProvingCluster c;
  TensorProofs right{false, {}, {}}, wrong{false, {}, {}};
  for (int i = 0; i < 100; ++i) {
    right.tensors.push_back(packed(1, std::to_string(i)));
    wrong.tensors.push_back(packed(666, std::to_string(i)));
  }
  const auto report = [&](std::size_t worker, const TensorProofs& proofs) {
    c.from(c.at[worker], TensorProofs(proofs));
    c.note();
  };
  const auto count = [&](const std::string& kind) {
    return std::count_if(c.s.events().begin(), c.s.events().end(),
                         [&](const auto& e) { return e.kind == kind; });
  };
  report(0, wrong);
  report(1, right);
  CHECK(count("load_failed") == 1);
  CHECK(count("proof_failed") == 1);
  CHECK(c.discarded.at(c.at[1].node).size() == 100);
  report(2, right);
  CHECK(count("proof_failed") == 2);
  CHECK_FALSE(c.member(0));
  CHECK(c.member(1));
  CHECK(c.member(2));
}

TEST_CASE("one decided tensor does not decide what others have confirmed") {
  ProvingCluster c;
  c.reports(1, proof(1, "u"));
  c.reports(2, proof(1, "u"));
  c.reports(1, proof(666));
  REQUIRE(c.kept.at("u").confirmed);
  // Right about the one, wrong about the other.
  c.from(c.at[0], TensorProofs{false, {proof(1), proof(666, "u")}, {}});
  c.note();
  c.reports(0, proof(1), true);
  c.reports(1, proof(666), true);
  c.reports(2, proof(1), true);
  while (!c.reads.empty()) c.head_reads(proof(1));
  CHECK_FALSE(c.member(1));
  CHECK(c.kept.at("t").proof.stored == proof(1).stored);
  CHECK(c.kept.at("t").confirmed);
  CHECK(c.kept.at("u").proof.stored == proof(1, "u").stored);
  CHECK(c.member(0));
  c.reports(0, proof(666, "u"), true);
  CHECK_FALSE(c.member(0));
  CHECK(c.member(2));
}

TEST_CASE("one against one: what came first stays, the newcomer does not serve") {
  ProvingCluster c(2);
  c.reports(0, proof(1));
  c.head_reads(std::nullopt);
  c.reports(1, proof(2));
  c.reports(0, proof(1), true);
  c.reports(1, proof(2), true);
  c.head_reads(std::nullopt);
  CHECK(c.member(0));
  CHECK_FALSE(c.member(1));
  CHECK(contains(c.newest("proof_failed"), "nobody else could decide"));
}

TEST_CASE("what is kept of an earlier life of the head is what the cluster serves") {
  SupervisorOptions o = options();
  o.known.tensors = {{proof(1), true}};
  o.known.numerics = Numerics::kReference;
  ProvingCluster c(3, o);
  CHECK(c.s.numerics() == Numerics::kReference);
  c.reports(0, proof(666));
  CHECK(c.reads.empty());
  c.reports(0, proof(666), true);
  CHECK_FALSE(c.member(0));
  c.reports(1, proof(1));
  CHECK(c.member(1));
}

TEST_CASE("memory that is not what was loaded costs a member its life, but not its place") {
  ProvingCluster c;
  c.all_loaded();
  REQUIRE(c.activated);
  c.from(c.at[1], ProofFailed{"t", "byte 7 of its packed form", 12});
  CHECK_FALSE(c.member(1));
  CHECK(contains(c.newest("proof_failed"), "12 s ago"));
  CHECK(c.s.counters().refused_copies == 1);
  Join again = good_join(102);
  again.host = "host2";
  again.held_id = c.at[1].node;
  again.held_cluster = "c1";
  REQUIRE(c.join(9, again));
  CHECK(c.s.members().at(c.at[1].node).closed_reason.empty());
}

TEST_CASE("a node that fails again and again is given nothing new for a while") {
  ProvingCluster c;
  c.all_loaded();
  Address at = c.at[1];
  for (std::uint32_t session = 10; session < 13; ++session) {
    c.from(at, ProofFailed{"t", "again", 1});
    Join again = good_join(102);
    again.host = "host2";
    again.held_id = at.node;
    again.held_cluster = "c1";
    at = *c.join(session, again);
  }
  CHECK_FALSE(c.s.members().at(at.node).closed_reason.empty());
}

}  // namespace troupe
