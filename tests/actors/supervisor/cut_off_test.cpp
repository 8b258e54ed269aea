#include "actors/supervisor/cut_off.h"

#include "tests/actors/supervisor/cluster_fixture.h"

namespace troupe::testing {
namespace {

TEST_CASE("of two members that do not reach each other one goes") {
  const NodeId old{1}, young{2};
  struct Row {
    const char* why;
    CutOff old, young;
    NodeId goes;
  };
  const std::vector<Row> rows = {
      {"nothing tells them apart", {}, {}, young},
      {"it lies at the older one's end", {.own_end = true}, {.broken = 4}, old},
      {"and both serve", {.own_end = true, .shards = 3}, {.broken = 4, .pieces = 1}, old},
      {"so it does, but it alone serves", {.own_end = true, .shards = 3}, {}, young},
      {"nobody reaches the older one", {.broken = 3}, {.broken = 1}, old},
      {"nobody reaches it, though it serves", {.broken = 3, .shards = 2}, {.broken = 1}, old},
      {"only the younger one serves", {}, {.shards = 1}, old},
      {"only the younger one has experts", {}, {.pieces = 1}, old},
      {"the older one is not where the head sees it", {.elsewhere = true}, {}, old},
      {"so is it, but it serves", {.shards = 1, .elsewhere = true}, {}, young},
      {"neither is", {.elsewhere = true}, {.elsewhere = true}, young},
  };
  for (Row row : rows) {
    CAPTURE(row.why);
    row.old.id = old;
    row.young.id = young;
    CHECK(who_goes(row.old, row.young) == row.goes);
    CHECK(who_goes(row.young, row.old) == row.goes);
  }
}

TEST_CASE("a bulk lane is where the head sees its worker, or elsewhere") {
  CHECK_FALSE(is_elsewhere("net:10.0.0.2:4711", "10.0.0.2:50000"));
  CHECK_FALSE(is_elsewhere("net:10.0.0.2:4711", "[::ffff:10.0.0.2]:50000"));
  CHECK_FALSE(is_elsewhere("net:[fe80::2]:4711", "[fe80::2%eth0]:50000"));
  CHECK_FALSE(is_elsewhere("net:head:4711", "127.0.0.1:50000"));
  CHECK_FALSE(is_elsewhere("none", "127.0.0.1:50000"));
  CHECK(is_elsewhere("net:172.17.0.2:4711", "10.0.0.2:50000"));
}

TEST_CASE("where the one that is left out is needed, people hear why, and not that memory lacks") {
  SupervisorOptions o = options();
  o.engine.pipeline_parallel_size = 2;
  Cluster c(0, Cluster::with(std::move(o), 2));
  for (int w = 1; w <= 2; ++w) {
    Join join = good_join(100 + w);
    join.devices[0].memory_total = kMiB + kMiB / 2;
    c.add(w, join);
  }
  const Address a = c.workers.at(1), b = c.workers.at(2);
  for (int i = 0; i < 2; ++i)
    c.from(a, PeerUnreachable{b.node, b.incarnation, "a firewall", LinkFault::kNobody});
  REQUIRE(c.s.members().size() == 1);
  Join again = good_join(102);
  again.devices[0].memory_total = kMiB + kMiB / 2;
  again.held_id = b.node;
  again.held_cluster = "c1";
  c.add(3, again);
  CHECK(c.s.message() ==
        "Left out for a while: node-1 (127.0.0.1:1 of here) cannot reach node-2 (127.0.0.1:1 of "
        "here): a firewall.");
  c.pass(2s);
  CHECK(c.s.message().find("a firewall") == std::string::npos);
}

/// Where both are to connect again, if they are.
std::optional<bool> reversed(const Head& head) {
  for (const auto& send : all<Send>(head.last))
    if (const auto* again = std::get_if<Connect>(send.message.get())) return again->peer.reversed;
  return std::nullopt;
}

bool tells(const Head& head, const std::string& kind, const std::string& words) {
  return std::ranges::any_of(head.s.events(), [&](const auto& event) {
    return event.kind == kind && event.text.find(words) != std::string::npos;
  });
}

TEST_CASE("where no connection came about, the other one goes the next time") {
  Cluster c(2);
  const Address a = c.workers.at(1), b = c.workers.at(2);
  const auto report = [&](LinkFault fault) {
    c.from(a, PeerUnreachable{b.node, b.incarnation, "nothing answers at 10.0.0.2:4711", fault});
  };
  SUBCASE("and stays so when that one breaks") {
    report(LinkFault::kNobody);
    CHECK(reversed(c) == true);
    CHECK(tells(c, "peer_unreachable", "10.0.0.2:4711"));
    c.pass(20s);
    report(LinkFault::kBroke);
    CHECK(reversed(c) == true);
  }
  SUBCASE("but not where there was one") {
    report(LinkFault::kBroke);
    CHECK(reversed(c) == false);
  }
  SUBCASE("the other one says that it found nobody: of the first attempt, or of its own") {
    report(LinkFault::kNobody);
    const PeerUnreachable theirs{a.node, a.incarnation, "it did not come", LinkFault::kNobody};
    c.from(b, theirs);
    CHECK(c.s.members().size() == 2);
    c.pass(2s);
    c.from(b, theirs);
    CHECK(c.s.members().size() == 1);
  }
  SUBCASE("only the other one says so, of its own") {
    report(LinkFault::kNobody);
    c.pass(2s);
    c.from(b, PeerUnreachable{a.node, a.incarnation, "nobody", LinkFault::kNobody});
    CHECK(c.s.members().size() == 1);
  }
  SUBCASE("neither way: one goes, and people hear what was first") {
    report(LinkFault::kNobody);
    c.from(a, PeerUnreachable{b.node, b.incarnation, "no new one", LinkFault::kNobody});
    CHECK(c.s.members().size() == 1);
    CHECK(tells(c, "node_lost", "10.0.0.2:4711"));
  }
  SUBCASE("who says that it lies at its own end goes at once") {
    report(LinkFault::kOwnEnd);
    CHECK(c.s.members().size() == 1);
    CHECK(c.s.members().contains(b.node));
  }
}

}  // namespace
}  // namespace troupe::testing
