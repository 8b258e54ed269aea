#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tools/troupe/bench/network_report.h"

using namespace troupe;
using namespace troupe::bench;

namespace {

NetworkNode node(std::uint32_t id, const std::string& provider, std::vector<std::string> providers,
                 const std::string& why = "auto: no verbs device has this address") {
  NetworkNode made{NodeId{id}, "host-" + std::to_string(id), provider + ":10.0.0.1:99", {}};
  made.port = {provider,
               why,
               std::move(providers),
               "eth0",
               "it has the control lane's address",
               {"eth0", "eth1"},
               1,
               100'000};
  return made;
}

PairReport pair(std::uint32_t a, std::uint32_t b, float p50_us, double there, double back) {
  return {1, NodeId{a}, NodeId{b}, {500, p50_us, 3 * p50_us, {{1u << 20, there, back}}}, 0, {}};
}

PairReport failed(std::uint32_t a, std::uint32_t b, Error error) {
  return {1, NodeId{a}, NodeId{b}, {}, 0, std::move(error)};
}

NetworkRun run() {
  NetworkRun made;
  for (std::uint32_t i = 1; i <= 4; ++i) made.plan.nodes.push_back(node(i, "net", {"net", "tcp"}));
  made.plan.pairs = 6;
  made.plan.rounds = 3;
  made.pairs = {pair(1, 4, 10, 10e9, 10e9),
                pair(2, 3, 12, 9e9, 8e9),
                pair(1, 3, 11, 10e9, 4e9),
                pair(2, 4, 40, 10e9, 9e9),
                failed(1, 2, not_found("They have no connection.")),
                failed(3, 4, unavailable("node-4 is \x1b[31mgone."))};
  made.duration_s = 2.5;
  made.complete = true;
  return made;
}

}  // namespace

TEST_CASE("what was chosen, and why") {
  struct Row {
    NetworkNode a, b;
    const char* provider;
    const char* text;
  };
  const Row rows[] = {
      {node(1, "net", {"net", "tcp"}), node(2, "net", {"net", "tcp"}), "net",
       "net: the fastest of net, tcp, which both have; no verbs device has this address"},
      {node(1, "verbs", {"verbs", "net", "tcp"}, "auto: a verbs device is up"),
       node(2, "verbs", {"verbs", "tcp"}, "auto: a verbs device is up"), "verbs",
       "verbs: the fastest of verbs, tcp, which both have; a verbs device is up"},
      {node(1, "tcp", {"net", "tcp"}, "asked for"), node(2, "tcp", {"tcp"}, "auto: no other"),
       "tcp", "tcp: the only provider that both have; asked for (node-2: no other)"},
      {node(1, "tcp", {"net", "tcp"}, "asked for"), node(2, "tcp", {"net", "tcp"}, "asked for"),
       "tcp", "tcp: though both have net, tcp; asked for"},
      {node(1, "net", {"net", "tcp"}), node(2, "tcp", {"net", "tcp"}), "",
       "node-1 goes by net and node-2 by tcp: start both with the same --fabric"},
      {node(1, "net", {"net"}), node(2, "", {}), "", "not known: a node has no bulk lane"},
  };
  for (const Row& row : rows) {
    const LinkChoice choice = link_choice(row.a, row.b);
    CHECK(choice.provider == row.provider);
    CHECK(choice.text == row.text);
  }
}

TEST_CASE("which part of a link was reached") {
  struct Row {
    std::uint64_t a, b;
    std::int32_t mbit;  // of both interfaces, which counts where the adapter says nothing
    const char* host;
    std::uint64_t bits;
    double share;
  };
  const Row rows[] = {
      {400'000'000'000, 100'000'000'000, -1, "b", 100'000'000'000, 0.32},
      {0, 100'000'000'000, -1, "b", 0, 0},
      {0, 100'000'000'000, 64'000, "b", 64'000'000'000, 0.5},
      {0, 0, -1, "b", 0, 0},
      {100'000'000'000, 100'000'000'000, -1, "host-1", 0, 0}};  // both of one machine
  for (const Row& row : rows) {
    NetworkNode a = node(1, "verbs", {"verbs"}), b = node(2, "verbs", {"verbs"});
    a.port.adapter.bits_per_s = row.a;
    b.port.adapter.bits_per_s = row.b;
    a.port.speed_mbit = b.port.speed_mbit = row.mbit;
    b.host = row.host;
    CHECK(link_bits_per_s(a, b) == row.bits);
    CHECK(link_share(pair(1, 2, 10, 4e9, 5e9), a, b) == doctest::Approx(row.share));
  }
}

TEST_CASE("outliers are told against the median") {
  const NetworkSummary s = summarize(run());
  CHECK(s.measured == 4);
  CHECK(s.no_link == 1);
  CHECK(s.failed == 1);
  CHECK(s.median_p50_us == doctest::Approx(11.5));
  REQUIRE(s.sizes.size() == 1);
  CHECK(s.sizes[0].median == doctest::Approx(9.5e9));
  CHECK(s.slowest == std::vector<std::size_t>{2, 1, 3, 0});
  CHECK(s.outliers[0].empty());
  CHECK(s.outliers[1].empty());
  CHECK(s.outliers[2] == std::vector<std::string>{"1024 KiB back 0.42 of the median"});
  CHECK(s.outliers[3] == std::vector<std::string>{"round trip 3.5 times the median"});
  NetworkRun two = run();
  two.pairs = {two.pairs[0], two.pairs[3]};
  for (const auto& outliers : summarize(two).outliers) CHECK(outliers.empty());
}

TEST_CASE("the JSON of a measurement") {
  const auto json = nlohmann::json::parse(network_json(run()));
  CHECK(json["complete"] == true);
  CHECK(json["nodes"].size() == 4);
  CHECK(json["nodes"][0]["numa_node"] == 1);
  CHECK(json["pairs"][0]["state"] == "measured");
  CHECK(json["pairs"][0]["round_trip_us"]["p50"] == 10);
  CHECK(json["pairs"][0]["rates"][0]["there_bytes_per_s"] == 10e9);
  CHECK(json["pairs"][4]["state"] == "no_link");
  CHECK(json["pairs"][4]["round_trip_us"].is_null());
  CHECK(json["pairs"][5]["state"] == "failed");
  CHECK(json["summary"]["outliers"] == 2);
  CHECK(json["summary"]["slowest"][0]["nodes"][1] == "node-3");
  NetworkRun odd = run();
  odd.plan.nodes[0].host = "\xff";
  odd.plan.nodes[0].port.numa_node = odd.plan.nodes[0].port.speed_mbit = -1;
  const auto known = nlohmann::json::parse(network_json(odd));
  CHECK(known["nodes"][0]["numa_node"].is_null());
  CHECK(known["nodes"][0]["adapter"].is_null());
  CHECK(known["pairs"][0]["link_share"].is_null());
}

TEST_CASE("adapters are told") {
  NetworkRun made = run();
  for (NetworkNode& node : made.plan.nodes) node.port.adapter = {.name = "mlx5_0"};
  made.plan.nodes[0].port.adapter.bits_per_s = 400'000'000'000;
  made.plan.nodes[3].port.adapter.bits_per_s = 200'000'000'000;
  made.plan.nodes[2].port.adapter = {.driver = "virtio_net", .bits_per_s = 2'500'000'000};
  made.plan.nodes[1].port = {};
  const auto json = nlohmann::json::parse(network_json(made));
  CHECK(json["nodes"][0]["adapter"]["name"] == "mlx5_0");
  CHECK(json["nodes"][0]["adapter"]["bits_per_s"] == 400'000'000'000);
  CHECK(json["nodes"][0]["adapter"]["firmware"].is_null());
  CHECK(json["nodes"][1]["adapter"].is_null());
  CHECK(json["pairs"][0]["adapters"] == nlohmann::json{"mlx5_0", "mlx5_0"});
  CHECK(json["pairs"][0]["link_bits_per_s"] == 200'000'000'000);
  CHECK(json["pairs"][0]["link_share"] == doctest::Approx(0.4));
  CHECK(json["pairs"][1]["link_bits_per_s"].is_null());
  const std::string text = network_text(made);
  for (const char* part : {"mlx5_0 400G", "virtio_net 2.5G", "10 / 10    40%"})
    CHECK_MESSAGE(text.find(part) != std::string::npos, part << "\n" << text);
}

TEST_CASE("the text of a measurement") {
  const std::string text = network_text(run());
  for (const char* part : {"node-1 - node-3      !", "failed: node-4 is ?[31mgone.",
                           "4 of 6 pairs measured in 2.5 s", "1 without a link, 1 failed",
                           "Slowest: node-1 - node-3 4 GB/s", "They have no connection."})
    CHECK_MESSAGE(text.find(part) != std::string::npos, part << "\n" << text);
  NetworkRun nothing;
  CHECK(network_text(nothing).find("0 of 0 pairs") != std::string::npos);
}
