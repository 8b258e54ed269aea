#include "tools/troupe/console/format.h"

#include <doctest/doctest.h>

#include "tests/tools/console/sample.h"

namespace troupe::console {

TEST_CASE("bytes, numbers and times are short") {
  for (const auto& [bytes, text] : {std::pair<std::uint64_t, const char*>{0, "0B"},
                                    {999, "999B"},
                                    {1000, "1.0K"},
                                    {1536, "1.5K"},
                                    {150 << 10, "150K"},
                                    {12'670'000'000, "11.8G"},
                                    {~std::uint64_t{0}, "16.0E"}})
    CHECK(short_bytes(bytes) == text);
  for (const auto& [number, text] : {std::pair(0.0, "0"),
                                     {0.44, "0.4"},
                                     {12.25, "12.2"},
                                     {843.4, "843"},
                                     {999.7, "1.0k"},
                                     {12345.0, "12.3k"},
                                     {2e6, "2.0M"}})
    CHECK(short_number(number) == text);
  for (const auto& [seconds, text] : {std::pair(0.0, "0.0s"),
                                      {-1.0, "0.0s"},
                                      {4.24, "4.2s"},
                                      {59.9, "59s"},
                                      {123.4, "2m03s"},
                                      {7200.0, "2h00m"},
                                      {90000.0, "1d01h"}})
    CHECK(short_time(seconds) == text);
  CHECK(percent(0.455) == "46%");
  CHECK(quantiles(std::nullopt) == "-");
  CHECK(quantiles(QuantileFacts{1.25, 40.4}) == "1.2/40");
  CHECK(clock_time(1000000061.5, 3600) == "02:47:41");
  CHECK(clock_time(10, -3600) == "23:00:10");
}

TEST_CASE("ranges and lists") {
  CHECK(ranges({}) == "");
  CHECK(ranges({4}) == "4");
  CHECK(ranges({0, 1, 2, 5, 7, 8}) == "0-2,5,7-8");
  CHECK(some_of({}, 2) == "");
  CHECK(some_of({"a", "b", "c"}, 2) == "a, b, c");
  CHECK(some_of({"a", "b", "c", "d"}, 2) == "a, b and 2 more");
}

TEST_CASE("what the cluster survives is one clause") {
  struct Case {
    std::vector<std::string> at_once, with_reload, not_at_all;
    const char* text;
  };
  const Case cases[] = {
      {{}, {}, {}, ""},
      {{"a", "b"}, {}, {}, "survives the loss of any one node at once"},
      {{}, {"a"}, {}, "survives the loss of any one node with a reload"},
      {{}, {}, {"a"}, "survives the loss of no node"},
      {{"a"}, {"b"}, {"c"}, "survives the loss of a at once; b with a reload; c not at all"},
      {{"a", "b", "c", "d", "e"},
       {},
       {"f"},
       "survives the loss of a, b, c and 2 more at once; f not at all"},
  };
  for (const Case& c : cases) {
    Facts facts;
    facts.survives = {true, c.at_once, c.with_reload, c.not_at_all};
    CHECK(survives_text(facts) == c.text);
    facts.survives.known = false;
    CHECK(survives_text(facts) == "");
  }
}

TEST_CASE("links are told, of many the median and the worst") {
  using Lines = std::vector<std::string>;
  CHECK(network_lines(Facts()).empty());
  CHECK(network_lines(sample()) ==
        Lines{"node-10 <> node-2  net eth0/ens1  2.31 GB/s  41 us  measured 12m03s ago"});
  const auto facts = [](const std::string& errors) {
    std::string list;
    for (std::size_t i = 0; i < errors.size(); ++i) {
      const std::string n = std::to_string(i + 1);
      list += (i > 0 ? "," : "") + std::string(R"({"nodes": ["a", "b)") + n +
              R"("], "provider": "tcp", "interfaces": ["lo", "lo"], "age_s": 5,
                  "round_trip_us": {"p50": )" +
              n + R"(0}, "rates": [{"there_bytes_per_s": )" + n +
              R"(e9, "back_bytes_per_s": 9e9}], "error": )" +
              (errors[i] == 'x' ? R"("It hangs."})" : "null}");
    }
    return read_facts(R"({"network": [)" + list + "]}").value();
  };
  CHECK(network_lines(facts("..x")) == Lines{"a <> b3  failed: It hangs.  measured 5.0s ago",
                                             "a <> b1  tcp lo  1 GB/s  10 us  measured 5.0s ago",
                                             "a <> b2  tcp lo  2 GB/s  20 us  measured 5.0s ago"});
  CHECK(network_lines(facts("....")) == Lines{"4 pairs, median 3 GB/s  30 us; the worst:",
                                              "a <> b1  tcp lo  1 GB/s  10 us  measured 5.0s ago",
                                              "a <> b2  tcp lo  2 GB/s  20 us  measured 5.0s ago"});
  CHECK(network_lines(facts("xx.x"))[0] == "4 pairs, 3 failed, median 3 GB/s  30 us; the worst:");
  CHECK(network_lines(facts("xxxx"))[0] == "4 pairs, 4 failed; the worst:");
}

TEST_CASE("sentences about a cluster") {
  const Facts facts = sample();
  CHECK(rates_text(facts) == "tokens/s in 12.2 out 843   ms p50/p99: first token 12/40, between -");
  CHECK(rates_text(Facts()) == "");
  CHECK(requests_text(facts) == "3 running, 1 waiting, 40 finished, 2 failed, 1 replayed");
  CHECK(standby_text(facts) == "d.example:6379 copying");
  CHECK(standby_text(Facts()) == "");
  CHECK(joined(expert_clauses(facts), ", ") ==
        "2 layers of 4, 5 copies a layer, imbalance 1.25, 2 moving, balanced 1m01s ago");
  CHECK(expert_clauses(Facts()).empty());
}

TEST_CASE("a cache full of prefixes that are kept is no empty one") {
  struct Case {
    std::int64_t used, cached, total;
    const char *text, *in_short;
  };
  const Case cases[] = {
      {0, 0, 0, "0 of 0", "0/0"},
      {250, 0, 1000, "250 of 1000", "250/1.0k"},
      {0, 65536, 65536, "0 of 65536, 65536 kept", "0+65.5k/65.5k"},
      {17, 1200, 65536, "17 of 65536, 1200 kept", "17+1.2k/65.5k"},
      {99'900, 99'900, 199'800, "99900 of 199800, 99900 kept", "99.9k+99.9k/200k"},
  };
  for (const Case& c : cases) {
    ReplicaFacts replica;
    replica.kv_used = c.used;
    replica.kv_cached = c.cached;
    replica.kv_total = c.total;
    CHECK(kv_text(replica) == c.text);
    CHECK(kv_short(replica) == c.in_short);
  }
}

TEST_CASE("how much is proven is one clause") {
  struct Case {
    ProofFacts proofs;
    const char* text;
  };
  const Case cases[] = {
      {{}, ""},
      {{312, 0, 0, {}, {}}, "0 of 312 parts proven"},
      {{312, 312, 0, 41.2, {}}, "312 of 312 parts proven, the oldest 41s ago"},
      {{312, 300, 1, 700, 720},
       "300 of 312 parts proven, the oldest 11m40s ago, a round takes 12m00s, 1 copy taken out"},
      {{9, 9, 2, 3, {}}, "9 of 9 parts proven, the oldest 3.0s ago, 2 copies taken out"},
  };
  for (const Case& c : cases) {
    Facts facts;
    facts.proofs = c.proofs;
    CHECK(proofs_text(facts) == c.text);
  }
}

}  // namespace troupe::console
