#include "tools/troupe/bench/serve_options.h"

#include <doctest/doctest.h>

#include <cmath>

namespace troupe::bench {
namespace {

using Bounds = std::vector<std::uint64_t>;

TEST_CASE("bounds of concurrency are numbers and ranges that double") {
  for (const auto& [words, bounds] : {
           std::pair{std::vector<std::string>{}, Bounds{}},
           {{"4"}, {4}},
           {{"1,2,4..200"}, {1, 2, 4, 8, 16, 32, 64, 128, 200}},
           {{"4..64"}, {4, 8, 16, 32, 64}},
           {{"3..3"}, {3}},
           {{"8", "1..4"}, {1, 2, 4, 8}},
           {{"8,1,8,", "2"}, {1, 2, 8}},
       }) {
    const auto parsed = parse_concurrency(words);
    REQUIRE(parsed.ok());
    CHECK(*parsed == bounds);
  }
  for (const char* wrong : {"0", "-1", "many", "4..", "..4", "8..4", "1...4", "1-4", "1.5", ",", "",
                            "2000000", "18446744073709551617"}) {
    const auto parsed = parse_concurrency({wrong});
    REQUIRE_MESSAGE(!parsed.ok(), wrong);
    CHECK(parsed.error().message.find("--max-concurrency") != std::string::npos);
  }
  std::string many = "1";
  for (int i = 2; i <= 65; ++i) many += "," + std::to_string(i);
  CHECK(!parse_concurrency({many}).ok());
}

TEST_CASE("a run of a series has 10 requests a stream, or those asked for, or one a stream") {
  CHECK(requests_of_streams(1, 1, {}) == 10);
  CHECK(requests_of_streams(200, 1, {}) == 2000);
  CHECK(requests_of_streams(4, 1, 100) == 100);
  CHECK(requests_of_streams(200, 1, 100) == 200);
  // A stream is a conversation.
  CHECK(requests_of_streams(4, 5, {}) == 40);
  CHECK(requests_of_streams(4, 20, {}) == 80);
  CHECK(requests_of_streams(4, 5, 10) == 20);
}

TEST_CASE("what is asked for becomes a plan") {
  ServeOptions o;
  const auto bare = resolve(o);
  REQUIRE(bare.ok());
  CHECK(bare->load.requests == 1000);
  CHECK(bare->load.max_concurrency == 0);
  CHECK(bare->series.empty());
  CHECK(std::isinf(bare->load.rate));
  o.max_concurrency = {"4"};
  o.request_rate = "2.5";
  o.goodput = {"ttft:500,tpot:50", "e2el:5000"};
  const auto one = resolve(o);
  REQUIRE(one.ok());
  CHECK(one->load.max_concurrency == 4);
  CHECK(one->load.rate == 2.5);
  CHECK(one->series.empty());
  CHECK(one->facts.goals == Goals{{"ttft", 500}, {"tpot", 50}, {"e2el", 5000}});
  CHECK(one->facts.dataset == "random");
  o.max_concurrency = {"1..4"};
  o.dataset = "sessions";
  const auto several = resolve(o);
  REQUIRE(several.ok());
  CHECK(several->series == Bounds{1, 2, 4});
  CHECK(several->load.max_concurrency == 0);
  CHECK(several->load.turns == 5);
}

TEST_CASE("what does not go together is told") {
  const auto told = [](const auto& change) {
    ServeOptions o;
    o.goodput = {"ttft:1"};
    change(o);
    const auto plan = resolve(o);
    REQUIRE(!plan.ok());
    return plan.error().message;
  };
  CHECK(told([](auto& o) { o.request_rate = "fast"; }) == "--request-rate: 'fast' is no number.");
  CHECK(told([](auto& o) { o.request_rate = "0"; }) == "--request-rate must be above 0, or inf.");
  CHECK(told([](auto& o) {
          o.sweep = "rate", o.request_rate = "2";
        }).find("leave --request-rate") != std::string::npos);
  CHECK(told([](auto& o) { o.sweep = "rate", o.max_concurrency = {"1,2"}; }) ==
        "--sweep rate goes with one --max-concurrency at most.");
  CHECK(told([](auto& o) {
          o.sweep = "concurrency", o.max_concurrency = {"2"};
        }).find("leave --max-concurrency out") != std::string::npos);
  CHECK(told([](auto& o) {
          o.sweep = "concurrency", o.num_prompts = 8, o.sweep_from = 9;
        }).find("--sweep-from must be 8 at most") != std::string::npos);
  CHECK(told([](auto& o) { o.max_concurrency = {"1,1000000"}; }).find("10000000 requests") !=
        std::string::npos);
}

}  // namespace
}  // namespace troupe::bench
