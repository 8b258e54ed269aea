#include "actors/metrics/request_window.h"

#include <doctest/doctest.h>

namespace troupe {
namespace {

using namespace std::chrono_literals;

constexpr TimePoint kStart{1000s};

TEST_CASE("nothing happened: no rate, no latency") {
  const RequestRates rates = RequestWindow().rates(kStart);
  CHECK(rates.prompt_tokens_per_s == 0);
  CHECK(rates.generation_tokens_per_s == 0);
  CHECK_FALSE(rates.first_token_ms);
  CHECK_FALSE(rates.inter_token_ms);
}

TEST_CASE("a steady stream has its rate, and it is gone ten seconds after its end") {
  RequestWindow window;
  TimePoint now = kStart;
  for (int i = 0; i < 3000; ++i, now += 10ms) {
    window.add_prompt_tokens(3, now);
    window.add_generation_tokens(1, now);
  }
  CHECK(window.rates(now).prompt_tokens_per_s == doctest::Approx(300).epsilon(0.01));
  CHECK(window.rates(now).generation_tokens_per_s == doctest::Approx(100).epsilon(0.01));
  CHECK(window.rates(now + 5s).generation_tokens_per_s == doctest::Approx(45).epsilon(0.1));
  CHECK(window.rates(now + 10s).generation_tokens_per_s == 0);
  CHECK(window.rates(now + 1h).prompt_tokens_per_s == 0);
}

TEST_CASE("quantiles are right to the width of a bin") {
  RequestWindow window;
  for (int i = 1; i <= 1000; ++i) {
    window.add_first_token(i * 1e-3, kStart + i * 1ms);  // 1 ms to 1 s
    window.add_inter_token(i == 7 ? 2.0 : 0.0125, kStart + i * 1ms);
  }
  const RequestRates rates = window.rates(kStart + 1s);
  REQUIRE(rates.first_token_ms);
  CHECK(rates.first_token_ms->p50 == doctest::Approx(500).epsilon(0.05));
  CHECK(rates.first_token_ms->p99 == doctest::Approx(990).epsilon(0.05));
  REQUIRE(rates.inter_token_ms);
  CHECK(rates.inter_token_ms->p50 == doctest::Approx(12.5).epsilon(0.05));
  CHECK(rates.inter_token_ms->p99 == doctest::Approx(12.5).epsilon(0.05));
  CHECK_FALSE(window.rates(kStart + 12s).first_token_ms);
}

TEST_CASE("values out of range count at its ends") {
  RequestWindow window;
  for (const double seconds : {-1.0, 0.0, 1e-9}) window.add_first_token(seconds, kStart);
  for (const double seconds : {1e4, 1e30}) window.add_inter_token(seconds, kStart);
  CHECK(window.rates(kStart).first_token_ms->p99 == doctest::Approx(0.01).epsilon(0.05));
  CHECK(window.rates(kStart).inter_token_ms->p50 == doctest::Approx(1e6).epsilon(0.06));
}

}  // namespace
}  // namespace troupe
