#include "tools/troupe/console/facts.h"

#include <doctest/doctest.h>

#include "tests/tools/console/sample.h"
#include "tools/troupe/console/format.h"

namespace troupe::console {

TEST_CASE("a status is read") {
  const Facts facts = sample();
  CHECK(facts.model == "pocket");
  CHECK(facts.placement_version == 3);
  CHECK(facts.standby.address == "d.example:6379");
  CHECK(facts.standby.state == "copying");
  CHECK(facts.survives.known);
  CHECK(facts.survives.with_reload == std::vector<std::string>{"node-10"});
  REQUIRE(facts.nodes.size() == 3);
  CHECK(facts.nodes[0].devices[0].slow);
  CHECK(facts.nodes[0].devices[0].about().empty());
  CHECK_FALSE(facts.nodes[0].devices[0].troubled());
  CHECK(facts.nodes[1].devices[0].about() ==
        "NVIDIA H100, 87 °C, throttled: too hot, 1 memory error");
  CHECK(facts.nodes[1].devices[0].troubled());
  CHECK(facts.nodes[1].utilization() == doctest::Approx(0.85));
  CHECK(facts.nodes[1].memory_used() == 60);
  CHECK(facts.nodes[1].memory_total() == 200);
  CHECK(facts.nodes[2].lost_reason == "its lease ended");
  REQUIRE(facts.replicas.size() == 2);
  CHECK(facts.replicas[1].id == "7");
  CHECK(facts.replicas[1].shards[1].first == 2);
  CHECK(facts.replicas[1].shards[1].device == "node-2/1");
  REQUIRE(facts.experts.layers.size() == 2);
  CHECK(facts.experts.experts == 4);
  CHECK(facts.experts.layers[0].copies(0) == 2);
  CHECK(facts.experts.layers[0].copies(3) == 1);
  CHECK(facts.experts.layers[1].copies(3) == 0);
  CHECK(facts.experts.find(1)->tokens[0] == 900);
  CHECK_FALSE(facts.experts.find(3));
  CHECK(facts.rates_known);
  CHECK(facts.first_token_ms->p99 == 40.1);
  CHECK_FALSE(facts.inter_token_ms);
  REQUIRE(facts.requests.size() == 2);
  CHECK(facts.find_request(51)->replica == 0);
  CHECK_FALSE(facts.find_request(52)->replica);
  CHECK(facts.events[1].kind == "node_lost");
  CHECK(facts.proofs.parts == 312);
  CHECK(facts.proofs.proven == 312);
  CHECK(facts.proofs.oldest_s == 41.5);
  CHECK(facts.proofs.refused == 1);
  CHECK_FALSE(facts.proofs.round_s);
  REQUIRE(facts.links.size() == 1);
  CHECK(facts.links[0].interface == "eth0/ens1");
  CHECK(facts.links[0].bytes_per_s == 2.31e9);
}

TEST_CASE("a node that was lost is news for ten minutes") {
  const auto nodes = [](const char* state, int last_seen_ms) {
    const std::string json = R"({"nodes": [{"id": "node-1", "state": ")" + std::string(state) +
                             R"(", "last_seen_ms": )" + std::to_string(last_seen_ms) + "}]}";
    return read_facts(json).value().nodes.size();
  };
  CHECK(nodes("lost", 600000) == 1);
  CHECK(nodes("lost", 600001) == 0);
  CHECK(nodes("ready", 600001) == 1);
}

TEST_CASE("shards that share their layers say which rank they are") {
  const auto facts = read_facts(R"({"replicas": [{"id": 3, "shards": [
    {"layers": [0, 30], "tp_rank": 0, "device": "node-1/0"},
    {"layers": [0, 30], "tp_rank": 1, "device": "node-2/0"},
    {"layers": [31, 60], "tp_rank": 0, "device": "node-3/0"},
    {"layers": [31, 60], "tp_rank": 1, "device": "node-3/1"}]},
    {"id": 4, "shards": [{"layers": [0, 60], "tp_rank": 0, "device": "node-4/0"}]}]})");
  REQUIRE(facts.ok());
  std::vector<std::string> texts;
  for (const auto& replica : facts->replicas)
    for (const auto& shard : replica.shards) texts.push_back(shard_text(shard));
  CHECK(texts == std::vector<std::string>{"0-30 rank 0 of 2 node-1/0", "0-30 rank 1 of 2 node-2/0",
                                          "31-60 rank 0 of 2 node-3/0",
                                          "31-60 rank 1 of 2 node-3/1", "0-60 node-4/0"});
}

TEST_CASE("a reader sees what changed, and keeps what did not") {
  FactsReader reader;
  const std::string text = kSample;
  const auto with = [&](std::string_view old, std::string_view now) {
    std::string changed = text;
    changed.replace(changed.find(old), old.size(), now);
    return reader.read(changed);
  };
  const auto same = [](const Facts& a, const Facts& b) {
    return a.experts.layers[0].slots == b.experts.layers[0].slots &&
           a.experts.layers[1].slots == b.experts.layers[1].slots &&
           a.experts.devices == b.experts.devices && a.experts.experts == b.experts.experts;
  };
  CHECK(same(reader.read(text).value(), sample()));
  CHECK(same(reader.read(text).value(), sample()));
  const Facts busier = with("[900, 0, 50, 50]", "[7, 0, 50, 50]").value();
  CHECK(busier.experts.layers[0].tokens[0] == 7);
  CHECK(same(busier, sample()));
  const Facts moved =
      with(R"({"expert": 1, "device": "node-2/0"})", R"({"expert": 1, "device": "node-2/1"})")
          .value();
  CHECK_FALSE(same(moved, sample()));
  CHECK(moved.experts.devices[moved.experts.layers[0].slots[2].device] == "node-2/1");
  CHECK(same(reader.read(text).value(), sample()));
  CHECK(reader.read("{}").value().experts.layers.empty());
  CHECK_FALSE(with(R"({"expert": 0)", R"({"expert" 0)").ok());
  // Brackets and names within strings are not taken for those of the list.
  CHECK(same(with("Serving pocket", R"(a \"placement\":[ ] [[ \" ])").value(), sample()));
  const Facts odd =
      with(R"({"expert": 0, "device": "node-2/0"})", R"({"expert": 0, "device": "]\"["})").value();
  CHECK(odd.experts.devices[0] == "]\"[");
}

TEST_CASE("what is no object is an error") {
  for (const char* text : {"", "[]", "3", "null", "{", "\xff"}) {
    const auto facts = read_facts(text);
    REQUIRE_FALSE(facts.ok());
    CHECK(facts.error().code == ErrorCode::kCorrupt);
  }
}

TEST_CASE("what is missing, or is not what it should be, keeps its default") {
  CHECK(read_facts("{}").value().nodes.empty());
  CHECK_FALSE(read_facts("{}").value().survives.known);
  // Every member as something else: a head of another version must not end the console.
  const char* odd[] = {
      R"({"cluster": 3, "nodes": {}, "replicas": "x", "experts": [], "requests": null})",
      R"({"cluster": {"state": 1.5, "uptime_s": "x", "message": null, "survives": {"at_once": 3}}})",
      R"({"nodes": [null, 3, {}, {"id": {}, "devices": [{}, 3, {"utilization": 1e300}]}]})",
      R"({"replicas": [{"shards": [{"layers": [1]}, {"layers": ["a", {}]}, 3]}]})",
      R"({"experts": {"experts": -1, "placement": [{"slots": [{"expert": -5}, {"expert": 1e18},
          {"expert": 1000000000}, {}, 3]}, 3],
          "load": [{"layer": 0, "tokens": ["x", -3, null]}]}})",
      R"({"requests": {"rates": [], "list": [3, {"id": -1, "age_s": 1e300}]}, "events": [3, {}]})",
  };
  for (const char* text : odd) CHECK(read_facts(text).ok());
  const Facts facts = read_facts(odd[4]).value();
  REQUIRE(facts.experts.layers.size() == 2);
  CHECK(facts.experts.layers[0].slots.size() == 2);  // those without a number are expert 0
  for (const double tokens : facts.experts.layers[0].tokens) CHECK(tokens == 0);
  CHECK(read_facts(odd[2]).value().nodes[3].devices[2].utilization == 1);
}

}  // namespace troupe::console
