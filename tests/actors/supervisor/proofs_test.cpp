#include <doctest/doctest.h>

#include "tests/actors/supervisor/head_fixture.h"

// Who is wrong when two nodes read a tensor otherwise, or two replicas compute otherwise.

namespace troupe {
namespace {

using namespace testing;

TensorProof proof(std::uint64_t bytes, const std::string& tensor = "t") {
  return {tensor, "model.safetensors", {{bytes, 0}}, Digest{bytes, 1}};
}

/// Three workers on three hosts, and a first version that waits for their Loaded.
struct ProvingCluster : Head {
  explicit ProvingCluster(int workers = 3, SupervisorOptions o = options())
      : Head(with(o, workers)) {
    for (int w = 1; w <= workers; ++w) {
      Join j = good_join(100 + w);
      j.host = "host" + std::to_string(w);
      at.push_back(*join(static_cast<std::uint32_t>(w), j));
      note();
    }
    REQUIRE(version.value == 1);
  }
  static SupervisorOptions with(SupervisorOptions o, int workers) {
    o.engine.min_devices = workers;
    o.engine.data_parallel_size = workers;
    return o;
  }
  void note() {
    for (const Load& load : sends<Load>()) version = load.placement.version;
    for (const auto& read : all<ReadTensors>(last)) reads.push_back(read);
    for (const auto& keep : all<KeepTensors>(last))
      for (const auto& tensor : keep.tensors) kept[tensor.proof.tensor] = tensor;
    for (const RunCanary& run : sends<RunCanary>()) runs[run.replica] = run.run;
    for (const auto& keep : all<KeepCanary>(last)) kept_canary = keep.canary;
    activated = activated || sent<Activate>();
    if (const auto news = router_hears<ReplicasChanged>()) routes = *news;
    if (const auto news = router_hears<ReplicasLost>()) lost = *news;
  }
  void reports(std::size_t worker, TensorProof tensor, bool fresh = false) {
    from(at[worker], TensorProofs{fresh, {std::move(tensor)}, {}});
    note();
  }
  void loaded(std::size_t worker) {
    from(at[worker], Loaded{version});
    note();
  }
  void all_loaded() {
    for (std::size_t w = 0; w < at.size(); ++w)
      if (s.members().contains(at[w].node)) loaded(w);
  }
  /// The head answers its oldest reading.
  void head_reads(std::optional<TensorProof> tensor) {
    REQUIRE(!reads.empty());
    const ReadTensors read = reads.front();
    reads.erase(reads.begin());
    TensorsRead answer{read.reading, read.fresh, {}, {}};
    if (tensor)
      answer.tensors.push_back(*tensor);
    else
      answer.error = unavailable("no disk");
    tell(std::move(answer));
    note();
  }
  /// The replica of that place answers what it was asked last; false: it was asked nothing.
  bool gives(std::size_t place, const KnownCanary& given) {
    wait(10ms);
    note();
    const ReplicaPlacement replica = s.active()->replicas.at(place);
    const auto run = runs.extract(replica.id);
    if (run.empty()) return false;
    const Address from{
        replica.node, s.members().at(replica.node).incarnation, {ActorKind::kReplica, replica.id}};
    this->from(from, CanaryResult{replica.id, run.mapped(), given.tokens, given.digests, {}});
    note();
    return true;
  }
  bool member(std::size_t worker) const {
    const auto found = s.members().find(at[worker].node);
    return found != s.members().end() && found->second.incarnation == at[worker].incarnation;
  }
  std::string newest(const std::string& kind) const {
    for (auto e = s.events().rbegin(); e != s.events().rend(); ++e)
      if (e->kind == kind) return e->text;
    return "";
  }

  std::vector<Address> at;
  PlacementVersion version;
  std::vector<ReadTensors> reads;
  std::map<std::string, KnownTensor> kept;
  std::map<std::uint32_t, std::uint64_t> runs;  ///< of the canary, by replica
  std::optional<KnownCanary> kept_canary;
  bool activated = false;
  ReplicasChanged routes;
  ReplicasLost lost;
};

}  // namespace

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
    CHECK(c.kept.at("t").proof == proof(1));
    CHECK(c.kept.at("t").confirmed);
  }
  SUBCASE("first, and nobody else loads that tensor: the head finds it") {
    ProvingCluster c;
    c.reports(0, proof(666));
    c.head_reads(proof(1));
    c.reports(0, proof(666), true);
    c.reports(1, proof(1), true);
    c.head_reads(proof(1));
    CHECK_FALSE(c.member(0));
    CHECK(c.kept.at("t").proof == proof(1));
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
  CHECK(c.kept.at("t").proof == proof(1));
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

// --- Replicas -----------------------------------------------------------------------------------

TEST_CASE("a replica serves once it has given the canary") {
  ProvingCluster c;
  c.canary.reset();
  c.all_loaded();
  REQUIRE(c.activated);
  const auto runs = c.sends<RunCanary>();
  REQUIRE(runs.size() == 3);
  CHECK(runs[0].prompt.size() + runs[0].generate == 64);
  CHECK(c.routes.replicas.empty());
  CHECK(c.s.state() != ClusterState::kReady);
  const auto answer = [&](std::size_t i, KnownCanary given) {
    const auto node = c.s.active()->replicas.at(i).node;
    const Address from{
        node, c.s.members().at(node).incarnation, {ActorKind::kReplica, runs[i].replica}};
    c.from(from, CanaryResult{runs[i].replica, runs[i].run, given.tokens, given.digests, {}});
    c.note();
  };
  answer(0, {{7}, {1, 2, 3, 4}});
  CHECK(c.routes.replicas.size() == 1);
  CHECK(c.s.state() == ClusterState::kReady);
  answer(1, {{7}, {1, 2, 3, 4}});
  CHECK(c.routes.replicas.size() == 2);
}

TEST_CASE("a replica that computes otherwise, twice, is taken out, and its shard is named") {
  ProvingCluster c;
  c.all_loaded();
  REQUIRE(c.routes.replicas.size() == 3);
  const ReplicaPlacement wrong = c.s.active()->replicas.at(1);
  const Address from{
      wrong.node, c.s.members().at(wrong.node).incarnation, {ActorKind::kReplica, wrong.id}};
  c.canary.reset();
  c.now += 60s;
  std::uint64_t sequence = 0;
  const auto renew = [&] {
    ++sequence;
    for (const Address& a : c.at)
      if (c.s.members().contains(a.node)) c.from(a, Renew{sequence, {{}}, {}, {}, sequence - 1});
  };
  // Renewed before the leases are looked at: time has passed for nobody.
  c.now -= 60s;
  for (int i = 0; i < 61; ++i) {
    c.now += 1s;
    renew();
  }
  const auto differs = [&] {
    c.wait(10ms);
    for (const auto& send : all<Send>(c.last))
      if (const auto* run = std::get_if<RunCanary>(send.message.get()); run && send.to == from) {
        c.from(from, CanaryResult{wrong.id, run->run, {7}, {1, 9, 9, 9}, {}});
        c.note();
        return true;
      }
    return false;
  };
  REQUIRE(differs());
  CHECK(c.s.members().contains(wrong.node));
  REQUIRE(differs());
  CHECK_FALSE(c.s.members().contains(wrong.node));
  CHECK(contains(c.newest("proof_failed"), "feed-forward part of layer 0"));
  CHECK(contains(c.newest("proof_failed"), "s ago"));
}

// Two layers, the second with experts: four boundaries, of the prompt and of one token.
static KnownCanary right() { return {{7, 8}, {1, 2, 3, 4, 5, 6, 7, 8}}; }

TEST_CASE("a wrong expert is not blamed on the layers that see the token it chose") {
  ProvingCluster c;
  c.canary.reset();
  c.all_loaded();
  for (std::size_t i = 0; i < 2; ++i) REQUIRE(c.gives(i, right()));
  const KnownCanary wrong{{9, 8}, {1, 2, 3, 40, 50, 60, 70, 80}};
  REQUIRE(c.gives(2, wrong));
  REQUIRE(c.gives(2, wrong));
  CHECK(contains(c.newest("proof_failed"), "the experts of layer 1"));
  for (std::size_t w = 0; w < 3; ++w) CHECK(c.member(w));
  CHECK(c.routes.replicas.size() == 2);
}

TEST_CASE("one replica against one: the newcomer does not serve, and nobody is taken out") {
  ProvingCluster c(2);
  c.canary.reset();
  c.all_loaded();
  REQUIRE(c.gives(0, {{9, 8}, {9, 2, 3, 4, 5, 6, 7, 8}}));
  REQUIRE(c.gives(1, right()));
  REQUIRE(c.gives(1, right()));
  CHECK(contains(c.newest("proof_failed"), "Nobody else could decide"));
  CHECK(c.member(0));
  CHECK(c.member(1));
  CHECK(c.routes.replicas.size() == 1);
}

TEST_CASE("what the only replica gives for a minute is known instead of what it gave once") {
  ProvingCluster c(2);
  c.canary.reset();
  c.all_loaded();
  REQUIRE(c.gives(0, {{9, 8}, {9, 2, 3, 4, 5, 6, 7, 8}}));
  const auto serves = [&] { return !c.routes.replicas.empty(); };
  REQUIRE(serves());
  bool served_early = false;
  for (std::uint64_t second = 1; second < 150; ++second) {
    c.wait(1s);
    c.note();
    for (std::size_t w = 0; w < 2; ++w) {
      c.from(c.at[w], Renew{second, {{}}, {}, {}, second - 1});
      c.note();
    }
    (void)c.gives(0, right());
    if (second < 120 && c.kept_canary == right()) served_early = true;
  }
  CHECK_FALSE(served_early);  // a minute until it is asked again, and one more
  CHECK(c.kept_canary == right());
  CHECK(serves());
}

TEST_CASE("what the canary gave while something was wrong counts no more once that is found") {
  const KnownCanary wrong{{9, 8}, {1, 2, 3, 40, 50, 60, 70, 80}};
  ProvingCluster c(2);
  c.canary.reset();
  c.all_loaded();
  REQUIRE(c.gives(0, wrong));
  CHECK(c.kept_canary == wrong);
  c.wait(1s);
  std::uint32_t last_good_s = 5;
  SUBCASE("it was known first meanwhile") {}
  SUBCASE("it was known before") { last_good_s = 0; }
  c.from(c.at[1], ProofFailed{"t", "a bit flipped", last_good_s});
  c.note();
  CHECK_FALSE(c.member(1));
  if (last_good_s == 0) {
    CHECK_FALSE(c.gives(0, right()));
    return;
  }
  REQUIRE(c.gives(0, right()));
  REQUIRE(c.gives(0, right()));
  CHECK(c.kept_canary == right());
  CHECK(c.member(0));
  CHECK(c.routes.replicas.size() == 1);
}

}  // namespace troupe
