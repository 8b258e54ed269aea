#include <nlohmann/json.hpp>
#include <set>

#include "actors/supervisor/pair_rounds.h"
#include "tests/actors/supervisor/head_fixture.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

std::vector<NodeId> nodes(std::uint32_t count) {
  std::vector<NodeId> all;
  for (std::uint32_t i = 1; i <= count; ++i) all.push_back(NodeId{3 * i});
  return all;
}

/// Whatever happens meanwhile: these clusters load all the time.
NetworkQuery all_pairs(std::uint64_t query) { return {query, {}, 0, {1u << 20}, true, false}; }

/// A head with that many workers and a client at session 90, where `client` says so.
struct Measured : Head {
  std::vector<Address> workers;
  explicit Measured(std::uint32_t count) {
    for (std::uint32_t i = 1; i <= count; ++i)
      workers.push_back(join(i, good_join(static_cast<std::int32_t>(100 + i))).value());
    client(90);
  }
  void client(std::uint32_t session) {
    up(session);
    from_session(session, ClientHello{kProtocol, "test"});
  }
  /// Answers all that was asked in the last turn, in one turn each.
  std::vector<PairReport> answer(float p50_us) {
    std::vector<PairReport> reports;
    SupervisorEffects asked = last;
    for (const auto& send : all<Send>(asked))
      if (const auto* order = std::get_if<MeasureLink>(send.message.get())) {
        from(send.to, LinkMeasured{order->number, {9, p50_us, 2 * p50_us, {}}, {}});
        for (const auto& report : sends<PairReport>()) reports.push_back(report);
      }
    return reports;
  }
};

}  // namespace

TEST_CASE("everyone meets everyone once, and nobody twice in a round") {
  for (std::uint32_t count = 0; count <= 17; ++count) {
    CAPTURE(count);
    const PairRounds found = pair_rounds(nodes(count), {}, 4096, false);
    CHECK(found.pairs == count * (count - std::min(count, 1u)) / 2);
    CHECK(found.left_out == 0);
    CHECK(found.rounds.size() == (count < 2 ? 0 : count - 1 + count % 2));
    std::set<NodePair> met;
    for (const auto& round : found.rounds) {
      std::set<NodeId> in_round;
      for (const NodePair& pair : round) {
        CHECK(pair.first < pair.second);
        CHECK(in_round.insert(pair.first).second);
        CHECK(in_round.insert(pair.second).second);
        CHECK(met.insert(pair).second);
      }
    }
    CHECK(met.size() == found.pairs);
  }
}

TEST_CASE("pairs are bounded, of one node, or one at a time") {
  struct Row {
    std::uint32_t count;
    std::optional<NodeId> only;
    std::size_t most;
    bool one;
    std::size_t rounds, pairs, left_out;
  };
  const Row rows[] = {
      {1000, {}, 4096, false, 9, 4096, 499'500 - 4096},
      {5, NodeId{6}, 4096, false, 4, 4, 0},
      {6, NodeId{18}, 2, false, 2, 2, 3},
      {6, NodeId{5}, 9, false, 0, 0, 0},
      {4, {}, 4096, true, 6, 6, 0},
      {4, {}, 5, true, 5, 5, 1},
      {2, {}, 1, false, 1, 1, 0},
  };
  for (const Row& row : rows) {
    CAPTURE(row.count);
    const PairRounds found = pair_rounds(nodes(row.count), row.only, row.most, row.one);
    CHECK(found.rounds.size() == row.rounds);
    CHECK(found.pairs == row.pairs);
    CHECK(found.left_out == row.left_out);
    for (const auto& round : found.rounds) {
      if (row.one) CHECK(round.size() == 1);
      for (const NodePair& pair : round)
        if (row.only) CHECK((pair.first == *row.only || pair.second == *row.only));
    }
  }
}

TEST_CASE("links are measured in rounds, each by its lower node") {
  Measured h(4);
  h.from_session(90, all_pairs(7));
  REQUIRE(h.sent<NetworkPlan>());
  CHECK(h.sent<NetworkPlan>()->pairs == 6);
  CHECK(h.sent<NetworkPlan>()->rounds == 3);
  CHECK(h.sent<NetworkPlan>()->nodes.size() == 4);
  std::set<NodePair> met;
  for (int round = 1; round <= 3; ++round) {
    CHECK(h.count_sent<MeasureLink>() == 2);
    for (const PairReport& report : h.answer(50)) {
      CHECK(report.query == 7);
      CHECK(!report.error);
      CHECK(report.figures.p50_us == 50);
      CHECK(met.emplace(report.lower, report.higher).second);
    }
    REQUIRE(h.sent<OperationProgress>());
    CHECK(h.sent<OperationProgress>()->done == std::size_t(2 * round));
    CHECK(h.sent<OperationProgress>()->finished == (round == 3));
  }
  CHECK(met.size() == 6);
  h.from_session(90, all_pairs(8));  // the next may begin
  CHECK(h.sent<NetworkPlan>());
}

TEST_CASE("why nothing is measured") {
  Measured h(1);
  const auto why = [&](const NetworkQuery& query, std::uint32_t session = 90) {
    h.from_session(session, query);
    REQUIRE(h.sent<OperationProgress>());
    CHECK(h.sent<OperationProgress>()->finished);
    REQUIRE(h.sent<OperationProgress>()->error);
    return h.sent<OperationProgress>()->error->message;
  };
  CHECK(contains(why(all_pairs(1)), "one worker, node-1"));
  h.workers.push_back(h.join(2, good_join(102)).value());
  CHECK(contains(why({2, NodeId{9}, 0, {1024}, false, false}), "no node-9"));
  CHECK(contains(why({3, {}, 0, {}, false, false}), "No size"));
  CHECK(contains(why({3, {}, 0, {1024}, false, false}), "Weights are being loaded"));
  h.from_session(90, all_pairs(4));
  REQUIRE(h.sent<NetworkPlan>());
  const SupervisorEffects asked = h.last;
  h.client(91);
  CHECK(contains(why(all_pairs(5), 91), "Another client"));
  h.down(91);
  h.last = asked;
  CHECK(h.answer(1).size() == 1);
  CHECK(h.sent<OperationProgress>()->finished);
}

TEST_CASE("a worker that goes takes its pairs with it, and no others") {
  Measured h(3);
  h.from_session(90, all_pairs(7));
  const auto asked = h.sent<MeasureLink>();
  REQUIRE(asked);
  const SupervisorEffects first = h.last;
  // The higher node of the pair dies: the lower one is to measure no more.
  const NodeId victim = asked->peer;
  h.down(victim.value);
  REQUIRE(h.sent<PairReport>());
  CHECK(h.sent<PairReport>()->higher == victim);
  CHECK(contains(h.sent<PairReport>()->error->message, to_string(victim) + " is gone"));
  REQUIRE(h.sent<EndMeasure>());
  CHECK(h.sent<EndMeasure>()->number == asked->number);
  // What comes late of it counts for nothing.
  for (const auto& send : all<Send>(first))
    if (std::holds_alternative<MeasureLink>(*send.message)) {
      const SupervisorEffects kept = h.last;
      h.from(send.to, LinkMeasured{asked->number, {}, {}});
      CHECK(!h.sent<PairReport>());
      h.last = kept;
    }
  int measured = 0, failed = 1;
  for (int i = 0;
       i < 5 && !(h.sent<OperationProgress>() && h.sends<OperationProgress>().back().finished);
       ++i) {
    for (const auto& report : h.sends<PairReport>()) failed += report.error && i > 0;
    measured += static_cast<int>(h.answer(3).size());
  }
  CHECK(measured == 1);
}

TEST_CASE("what was measured last is kept while both live") {
  Measured h(3);
  const auto network = [&] {
    return nlohmann::json::parse(status_json(h.s, {}, h.now))["network"];
  };
  const auto measure = [&](float p50_us) {
    h.from_session(90, all_pairs(7));
    for (int round = 0; round < 3; ++round) h.answer(p50_us);
  };
  CHECK(network().empty());
  measure(40);
  measure(50);
  h.now += 1500ms;
  const auto pairs = network();
  REQUIRE(pairs.size() == 3);
  CHECK(pairs[0]["nodes"] == nlohmann::json{"node-1", "node-2"});
  CHECK(pairs[0]["round_trip_us"]["p50"] == 50);
  CHECK(pairs[0]["age_s"] == 1.5);
  CHECK(pairs[0]["error"].is_null());
  SUBCASE("a node that goes takes its figures with it") {
    h.down(2);
    REQUIRE(network().size() == 1);
    CHECK(network()[0]["nodes"] == nlohmann::json{"node-1", "node-3"});
  }
  SUBCASE("and so does one that comes back in another life") {
    Join again = good_join(102);
    again.held_cluster = "c1";
    again.held_id = NodeId{2};
    h.join(12, again);
    CHECK(h.s.members().size() == 3);
    CHECK(network().size() == 1);
  }
  SUBCASE("a pair whose node is gone while it is measured has none") {
    h.from_session(90, all_pairs(8));
    const auto asked = h.sent<MeasureLink>();
    REQUIRE(asked);
    h.down(asked->peer.value);
    CHECK(network().size() == 1);
    for (int round = 0; round < 3; ++round) h.answer(3);
    CHECK(network().size() == 1);
  }
}

TEST_CASE("what is kept of measurements has a bound, and no link has no figures") {
  LinkRecord record;
  const auto pair = [](std::uint32_t i) { return PairReport{1, NodeId{1}, NodeId{i}, {}, 0, {}}; };
  const TimePoint begin{};
  for (std::uint32_t i = 2; i < 2 + LinkRecord::kPairsMax; ++i)
    record.keep(pair(i), begin + i * 1s);
  record.keep(pair(2), begin + 9999s);  // no longer the oldest
  record.keep(pair(99'999), begin + 9999s);
  CHECK(record.all().size() == LinkRecord::kPairsMax);
  CHECK(record.all().contains({NodeId{1}, NodeId{2}}));
  CHECK(!record.all().contains({NodeId{1}, NodeId{3}}));
  PairReport again = pair(4);
  again.error = unavailable("It hangs.");
  record.keep(again, begin);
  CHECK(record.all().at({NodeId{1}, NodeId{4}}).report.error);
  again.error = not_found("They have no connection.");
  record.keep(again, begin);
  CHECK(!record.all().contains({NodeId{1}, NodeId{4}}));
  record.forget(NodeId{1});
  CHECK(record.all().empty());
}

TEST_CASE("one that says nothing has a deadline") {
  Measured h(2);
  h.from_session(90, all_pairs(7));
  const auto asked = h.sent<MeasureLink>();
  REQUIRE(asked);
  std::uint64_t sequence = 0;
  std::optional<PairReport> report;
  for (TimePoint end = h.now + NetworkBench::kPairDeadline + 200ms; h.now < end && !report;) {
    h.wait(200ms);
    report = h.sent<PairReport>();
    if (report) break;
    ++sequence;
    for (const Address& worker : h.workers) h.from(worker, Renew{sequence, {{}}, {}});
  }
  REQUIRE(report);
  CHECK(contains(report->error->message, "did not say in time"));
  REQUIRE(h.sent<EndMeasure>());
  CHECK(h.sent<EndMeasure>()->number == asked->number);
  CHECK(h.sent<OperationProgress>()->finished);
}

TEST_CASE("a client that goes, or a cluster that stops, ends it") {
  Measured h(2);
  h.from_session(90, all_pairs(7));
  const auto asked = h.sent<MeasureLink>();
  REQUIRE(asked);
  SUBCASE("the client") {
    h.down(90);
    CHECK(h.sent<EndMeasure>()->number == asked->number);
    h.client(92);
    h.from_session(92, all_pairs(1));
    CHECK(h.sent<NetworkPlan>());
  }
  SUBCASE("the cluster") {
    h.tell(StopCluster{"enough"});
    CHECK(h.sent<EndMeasure>());
    REQUIRE(h.sent<OperationProgress>());
    CHECK(contains(h.sent<OperationProgress>()->error->message, "stopping"));
  }
}
