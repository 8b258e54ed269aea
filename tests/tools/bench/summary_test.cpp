#include "tools/troupe/bench/summary.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "tools/troupe/bench/random.h"

namespace troupe::bench {
namespace {

TEST_CASE("percentiles lie between values as numpy's do") {
  struct Case {
    std::vector<double> sorted;
    double percent, value;  // numpy.percentile(sorted, percent)
  };
  const Case cases[] = {
      {{}, 50, 0},
      {{7}, 0, 7},
      {{7}, 99, 7},
      {{1, 2}, 50, 1.5},
      {{1, 2}, 99, 1.99},
      {{1, 2, 3, 4}, 50, 2.5},
      {{1, 2, 3, 4}, 25, 1.75},
      {{1, 2, 3, 4}, 100, 4},
      {{1, 2, 3, 4}, 0, 1},
      {{0, 10, 20, 30, 40, 50}, 90, 45},
      {{0, 10, 20, 30, 40, 50}, 99.9, 49.95},
  };
  for (const Case& c : cases) CHECK(percentile(c.sorted, c.percent) == doctest::Approx(c.value));
  const Spread spread = spread_of({4, 1, 3, 2});
  CHECK(spread.mean == doctest::Approx(2.5));
  CHECK(spread.median == doctest::Approx(2.5));
  CHECK(spread.std == doctest::Approx(std::sqrt(1.25)));  // numpy.std
  CHECK(spread_of({}).mean == 0);
}

RequestRecord answered(double start_s, double ttft_s, std::vector<float> gaps) {
  RequestRecord r;
  r.started = r.ok = r.usage_told = true;
  r.start_s = start_s;
  r.ttft_s = r.latency_s = ttft_s;
  for (const float gap : gaps) r.latency_s += gap;
  r.ended_s = r.start_s + r.latency_s;
  r.itls_s = std::move(gaps);
  r.pieces = r.output_tokens = r.itls_s.size() + 1;
  r.prompt_tokens = 10;
  return r;
}

TEST_CASE("a summary is what vLLM would say of the same requests") {
  std::vector<RequestRecord> records = {answered(0, 0.5, {0.25F, 0.25F}), answered(1, 1, {}),
                                        answered(0.5, 0.5, {2})};
  RequestRecord failed;
  failed.started = true;
  failed.start_s = 1;
  failed.ended_s = 3;
  RequestRecord cut = answered(0, 9, {9});
  cut.ok = false;
  cut.cut = true;
  records.push_back(failed);
  records.push_back(cut);
  records.push_back({});  // never sent
  const Summary s = summarize(records, 4, {{"ttft", 600}, {"tpot", 300}});
  CHECK(s.completed == 3);
  CHECK(s.failed == 1);
  CHECK(s.unfinished == 2);
  CHECK(s.input_tokens == 30);
  CHECK(s.output_tokens == 6);
  CHECK(s.request_throughput == doctest::Approx(0.75));
  CHECK(s.output_throughput == doctest::Approx(1.5));
  CHECK(s.total_token_throughput == doctest::Approx(9));
  // The second misses the first goal, the third the second.
  CHECK(*s.request_goodput == doctest::Approx(0.25));
  CHECK(s.good_share == doctest::Approx(0.25));
  CHECK(s.ttft.mean == doctest::Approx(2000.0 / 3));
  CHECK(s.tpot.sorted == std::vector<double>{250, 2000});  // answers of one token have none
  CHECK(s.itl.sorted == std::vector<double>{250, 250, 2000});
  CHECK(s.longest_gap_s == doctest::Approx(2));
  CHECK(s.longest_gap_at_s == doctest::Approx(1));
  CHECK(s.max_concurrent_requests == 2);
  const Summary none = summarize({}, 0, {});
  CHECK(none.completed == 0);
  CHECK(!none.request_goodput);
}

TEST_CASE("an answer that came at one moment has no time per token") {
  RequestRecord one_piece = answered(0, 0.5, {});
  one_piece.output_tokens = 64;
  const RequestRecord one_read = answered(0, 0.5, {0, 0}), slow = answered(0, 0.5, {0.25F});
  const Summary s = summarize({one_piece, one_read, slow}, 1, {{"tpot", 300}});
  CHECK(s.completed == 3);
  CHECK(s.at_once == 2);
  CHECK(s.output_tokens == 69);
  CHECK(s.tpot.sorted == std::vector<double>{250});
  CHECK(s.itl.sorted == std::vector<double>{250});
  CHECK(s.ttft.sorted.size() == 3);
  CHECK(s.good_share == doctest::Approx(1.0 / 3));
  // Of one token there is nothing to time, and other goals do not need it.
  CHECK(summarize({answered(0, 0.5, {})}, 1, {{"tpot", 1}}).good_share == 1);
  CHECK(summarize({one_piece}, 1, {{"ttft", 600}, {"e2el", 600}}).good_share == 1);
}

TEST_CASE("one that ends as another begins is not with it") {
  CHECK(summarize({answered(0, 1, {}), answered(1, 1, {})}, 2, {}).max_concurrent_requests == 1);
  CHECK(summarize({answered(0, 1, {}), answered(0.9, 1, {})}, 2, {}).max_concurrent_requests == 2);
}

TEST_CASE("seconds hold what came in them") {
  RequestRecord bundled = answered(0.2, 0.3, {1});
  bundled.output_tokens = 8;  // in two pieces
  const auto seconds = seconds_of({bundled, answered(1.5, 0.25, {})}, 2.1);
  REQUIRE(seconds.size() == 4);
  CHECK(seconds[0].output_tokens == doctest::Approx(4));
  CHECK(seconds[1].output_tokens == doctest::Approx(5));
  CHECK(seconds[0].running == 1);
  CHECK(seconds[1].running == 1);  // one after the other
  CHECK(seconds[2].running == 0);
  CHECK(seconds_of({answered(0.2, 2, {}), answered(1.2, 0.5, {})}, 2.5)[1].running == 2);
  CHECK(seconds_of({}, -1).size() == 1);
}

TEST_CASE("arrivals have the rate, the burstiness and the seed") {
  for (const double burstiness : {0.25, 1.0, 4.0}) {
    CAPTURE(burstiness);
    const auto at = arrivals(20'000, 50, burstiness, 3);
    CHECK(at.back() == doctest::Approx(400));
    CHECK(std::is_sorted(at.begin(), at.end()));
    CHECK(at == arrivals(20'000, 50, burstiness, 3));
    CHECK(at != arrivals(20'000, 50, burstiness, 4));
    std::vector<double> gaps(at.size());
    std::adjacent_difference(at.begin(), at.end(), gaps.begin());
    const Spread spread = spread_of(gaps);
    // A gamma distribution's deviation is its mean by the root of its shape.
    CHECK(spread.std / spread.mean == doctest::Approx(1 / std::sqrt(burstiness)).epsilon(0.05));
  }
  const auto even = arrivals(4, 2, std::numeric_limits<double>::infinity(), 0);
  CHECK(even == std::vector<double>{0.5, 1, 1.5, 2});
  const auto at_once = arrivals(3, std::numeric_limits<double>::infinity(), 1, 0);
  CHECK(at_once == std::vector<double>{0, 0, 0});
  CHECK(arrivals(0, 1, 1, 0).empty());
}

}  // namespace
}  // namespace troupe::bench
