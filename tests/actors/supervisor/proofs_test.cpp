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

TEST_CASE("what the head reads first of a node counts over all portions of its report") {
  ProvingCluster c(1);
  for (const char* tensor : {"a", "b", "c"}) c.reports(0, proof(1, tensor));
  c.all_loaded();
  REQUIRE(c.reads.size() == 1);
  const std::uint64_t limit = c.reads[0].bytes_max;
  c.head_reads(proof(1, "a"), limit - 1);
  CHECK_FALSE(c.activated);
  REQUIRE(c.reads.size() == 1);
  CHECK(c.reads[0].tensors == std::vector<std::string>{"b", "c"});
  CHECK(c.reads[0].bytes_max == 1);
  c.head_reads(proof(1, "b"), 5);
  CHECK(c.reads.empty());
  CHECK(c.activated);
  CHECK(c.kept.at("b").confirmed);
  CHECK_FALSE(c.kept.at("c").confirmed);
}

TEST_CASE("what the head reads first is read while the node still loads, once a version") {
  ProvingCluster c(1);
  c.reports(0, proof(1, "a"));
  REQUIRE(c.reads.size() == 1);
  const std::uint64_t limit = c.reads[0].bytes_max;
  c.head_reads(proof(1, "a"), limit - 1);
  c.reports(0, proof(1, "b"));
  REQUIRE(c.reads.size() == 1);
  CHECK(c.reads[0].bytes_max == 1);
  c.head_reads(proof(1, "b"), 5);
  c.reports(0, proof(1, "c"));
  CHECK(c.reads.empty());
  c.all_loaded();
  CHECK(c.activated);
  CHECK_FALSE(c.kept.at("c").confirmed);
}

TEST_CASE("a version that loads while the head reads has its own share of first reports read") {
  ProvingCluster c(2);
  c.all_loaded();
  REQUIRE(c.activated);
  c.reports(0, proof(1, "a"));
  REQUIRE(c.reads.size() == 1);
  const std::uint64_t limit = c.reads[0].bytes_max;
  c.reports(0, proof(1, "b"));
  const PlacementVersion first = c.version;
  c.down(2);
  c.note();
  REQUIRE(c.version > first);          // while the reading is under way
  c.head_reads(proof(1, "a"), limit);  // all that the first version's reports had
  CHECK(c.kept.at("a").confirmed);
  REQUIRE(c.reads.size() == 1);
  CHECK(c.reads[0].tensors == std::vector<std::string>{"b"});
  CHECK(c.reads[0].bytes_max == limit);
  c.loaded(0);
  CHECK(c.s.active()->version == first);  // the reading holds the second one up
  c.head_reads(proof(1, "b"), limit);
  CHECK(c.s.active()->version == c.version);
  c.reports(0, proof(1, "c"));
  CHECK(c.reads.empty());  // that share is used up as well
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
  CHECK(contains(c.newest("proof_failed"), "no third node could decide"));
  for (std::size_t w = 0; w < 3; ++w) CHECK(c.member(w));
  CHECK(c.discarded ==
        std::map<NodeId, std::set<std::string>>{{c.at[0].node, {"t"}}, {c.at[1].node, {"t"}}});
  CHECK(contains(c.newest("load_failed"), "node-2"));
  CHECK(c.version > refused);
  CHECK_FALSE(c.activated);
  SUBCASE("a third decides") {
    c.reports(2, packed(1));
    CHECK(c.member(0));  // it has thrown its copy away
    c.reports(0, packed(666));
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

TEST_CASE("two that insist on packing otherwise: the one serves, the other does not begin to") {
  ProvingCluster c(2);
  c.reports(0, packed(666));
  const PlacementVersion first = c.version;
  c.reports(1, packed(1));
  REQUIRE(c.version > first);
  c.reports(0, packed(666));
  c.head_reads(proof(1));
  c.loaded(0);
  REQUIRE(c.activated);
  c.discarded.clear();
  c.reports(1, packed(1));
  CHECK(c.member(0));
  CHECK(c.member(1));
  // What serves stays.
  CHECK(c.discarded == std::map<NodeId, std::set<std::string>>{{c.at[1].node, {"t"}}});
}

TEST_CASE("a copy that was thrown away accuses nobody, and costs nothing") {
  ProvingCluster c;
  c.reports(0, packed(1));
  c.reports(1, packed(666));
  c.reports(0, packed(1));  // it read again; the other one did not have to
  c.reports(2, packed(1));
  for (std::size_t w = 0; w < 3; ++w) CHECK(c.member(w));
  CHECK(c.kept.at("t").proof == packed(1));
  c.reports(1, packed(666));
  CHECK_FALSE(c.member(1));
}

TEST_CASE("what only an earlier life of the head knew, and did not confirm, is read first") {
  SupervisorOptions o = options();
  o.known.tensors = {{proof(1), false}};
  o.known.tensors[0].proof.packed.reset();
  o.known.numerics = Numerics::kReference;
  ProvingCluster c(3, o);
  c.reads.clear();
  c.reports(0, proof(1));
  c.all_loaded();
  CHECK_FALSE(c.activated);
  c.head_reads(proof(1));
  CHECK(c.activated);
}

TEST_CASE("one that packs a hundred tensors otherwise fails one load, and goes once") {
  ProvingCluster c;
  // In portions, as a worker tells them.
  const auto report = [&](std::size_t worker, std::uint64_t how) {
    for (int portion = 0; portion < 10; ++portion) {
      TensorProofs proofs{false, {}, {}};
      for (int i = 0; i < 10; ++i)
        proofs.tensors.push_back(packed(how, std::to_string(10 * portion + i)));
      if (c.member(worker)) c.from(c.at[worker], std::move(proofs));
      c.note();
    }
  };
  const auto count = [&](const std::string& kind) {
    return std::count_if(c.s.events().begin(), c.s.events().end(),
                         [&](const auto& e) { return e.kind == kind; });
  };
  report(0, 666);
  report(1, 1);
  CHECK(count("load_failed") == 1);
  CHECK(c.discarded.at(c.at[1].node).size() == 100);
  CHECK(c.discarded.at(c.at[0].node).size() == 10);  // of what ended the load
  report(2, 1);
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

TEST_CASE("who cannot read one tensor still has a vote on the others") {
  ProvingCluster c(4);
  c.reports(2, proof(666));
  c.reports(2, proof(1, "u"));
  c.reports(0, proof(1));
  c.reports(1, proof(2, "u"));
  // All are asked about both, and one's copy of the second is gone.
  for (const std::size_t witness : {1, 3}) {
    c.from(c.at[witness], TensorProofs{true, {}, not_found("no file"), {"u"}});
    c.note();
  }
  c.reports(0, proof(1), true);
  c.reports(2, proof(666), true);
  c.reports(3, proof(1), true);
  c.reports(1, proof(1), true);
  while (!c.reads.empty()) c.head_reads(std::nullopt);
  CHECK(c.member(0));
  CHECK_FALSE(c.member(2));
  CHECK(c.kept.at("t").proof.stored == proof(1).stored);
}

TEST_CASE("files that were rewritten in place decide nothing, whoever reads them again") {
  ProvingCluster c;
  c.reports(0, proof(1));
  while (!c.reads.empty()) c.head_reads(std::nullopt);
  // All have the same files, which have changed; a newcomer reads what they are now.
  c.reports(1, proof(666));
  for (const std::size_t w : {0, 1, 2}) {
    TensorProofs now{true, {proof(666)}, {}};
    now.reopened = true;
    c.from(c.at[w], std::move(now));
    c.note();
  }
  while (!c.reads.empty()) {
    const ReadTensors read = c.reads.front();
    c.reads.erase(c.reads.begin());
    c.tell(TensorsRead{read.reading, read.fresh, {proof(666)}, 0, {}, {}, true});
    c.note();
  }
  CHECK(c.member(0));
  CHECK(c.kept.at("t").proof.stored == proof(1).stored);
  // Nor does the head's own look.
  c.tell(TensorsRead{0, false, {proof(666)}, 0, {}, {}, true});
  c.note();
  CHECK(c.member(0));
  CHECK(contains(c.newest("proofs"), "give the head the same files"));
  // What they still have counts.
  c.tell(TensorsRead{0, false, {proof(1)}, 0, {}, {}, true});
  c.note();
  CHECK(c.kept.at("t").confirmed);
}

TEST_CASE("who serves and reads something else in a new load fails that load, and serves on") {
  ProvingCluster c;
  for (const std::size_t w : {0, 2}) c.reports(w, proof(1));
  while (!c.reads.empty()) c.head_reads(proof(1));
  c.all_loaded();
  REQUIRE(c.activated);
  REQUIRE(c.routes.replicas.size() == 3);
  const PlacementVersion before = c.version;
  c.down(3);
  c.note();
  REQUIRE(c.version > before);  // the second one gets an expert
  TensorProofs news;
  news.changed = "/models/m/model.safetensors has changed since it was opened";
  c.from(c.at[1], std::move(news));
  CHECK(contains(c.newest("files_changed"), "model.safetensors has changed"));
  c.reports(1, proof(666));
  c.reports(1, proof(666), true);
  CHECK(c.member(1));
  CHECK(contains(c.newest("proof_failed"), "is not what the cluster serves"));
  CHECK(contains(c.newest("load_failed"), "is not what the cluster serves"));
  CHECK(c.discarded.at(c.at[1].node).contains("t"));
  // With nothing that it serves, it goes.
  ProvingCluster fresh;
  for (const std::size_t w : {1, 2}) fresh.reports(w, proof(1));
  fresh.reports(0, proof(666));
  fresh.reports(0, proof(666), true);
  CHECK_FALSE(fresh.member(0));
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
  // It may be what is kept that is wrong, so nobody goes; but nothing is loaded.
  c.reports(0, proof(666));
  CHECK(c.reads.empty());
  c.reports(0, proof(666), true);
  CHECK(c.member(0));
  CHECK(contains(c.newest("load_failed"), "the file 'known' in the head's state folder"));
  CHECK(c.discarded.at(c.at[0].node) == std::set<std::string>{"t"});
  // Once somebody has read the same, it is who reads otherwise that is wrong.
  c.reports(1, proof(1));
  c.reports(0, proof(666));
  c.reports(0, proof(666), true);
  CHECK_FALSE(c.member(0));
  c.reports(1, proof(1));
  CHECK(c.member(1));
}

TEST_CASE("what is said of a copy that has changed in memory names the device, in one sentence") {
  ProvingCluster c;
  const Member& member = c.s.members().at(c.at[1].node);
  const std::string where = "Tensor t in the memory of " + to_string(member.id) + " on host2 is ";
  CHECK(text_of(ProofFailed{"t", "9 bytes of it in the memory of device 1 are not.", 12}, member) ==
        where +
            "not what was loaded: 9 bytes of it in the memory of device 1 are not; its last "
            "good proof was 12 s ago.");
  CHECK(text_of(ProofFailed{"t", "", 1}, member) ==
        where + "not what was loaded; its last good proof was 1 s ago.");
  const std::string longest = text_of(ProofFailed{"t", std::string(1 << 16, 'x'), 1}, member);
  CHECK(longest.size() < (1 << 13));
}

TEST_CASE("memory that is not what was loaded costs a member its life, but not its place") {
  ProvingCluster c;
  c.all_loaded();
  REQUIRE(c.activated);
  c.from(c.at[1], ProofFailed{"t", "byte 7 of its packed form", 12});
  CHECK(c.sends<ForgetPrefixes>().size() == 2);  // experts there may have been asked by all
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
