#include "actors/metrics/request_history.h"

#include <doctest/doctest.h>

#include <chrono>

#include "tests/actors/metrics/slot.h"

using namespace troupe;
using namespace std::chrono_literals;

TEST_CASE("slots hold what came in them, and those that are not over are not told") {
  RequestHistory history(slot(0));
  CHECK(history.slots(slot(0) + 4s).empty());
  history.set_running(2, slot(0) + 1s);
  history.add_prompt_tokens(10, slot(0) + 1s);
  for (const double s : {0.1, 0.2, 0.4}) history.add_first_token(s, slot(0) + 2s);
  history.add_inter_token(0.01, slot(0) + 3s);
  history.set_running(1, slot(0) + 3s);
  history.add_generation_tokens(5, slot(1));
  history.add_generation_tokens(6, slot(1) + 4s);
  const auto slots = history.slots(slot(2) - 1ms);
  REQUIRE(slots.size() == 1);
  CHECK(slots[0].prompt_tokens == 10);
  CHECK(slots[0].generation_tokens == 0);
  CHECK(slots[0].running == 2);
  REQUIRE(slots[0].first_token_ms);
  CHECK(slots[0].first_token_ms->p50 == doctest::Approx(200).epsilon(0.05));
  CHECK(slots[0].first_token_ms->p99 == doctest::Approx(400).epsilon(0.05));
  REQUIRE(slots[0].inter_token_ms);
  CHECK(slots[0].inter_token_ms->p50 == doctest::Approx(10).epsilon(0.05));
  const auto two = history.slots(slot(2));
  REQUIRE(two.size() == 2);
  CHECK(two[1].generation_tokens == 11);
  CHECK(two[1].running == 1);
  CHECK(!two[1].first_token_ms);
  CHECK(!two[1].inter_token_ms);
}

TEST_CASE("where nothing happens requests stay what they were") {
  RequestHistory history(slot(0));
  history.set_waiting(3, slot(1));
  history.add_first_token(1, slot(1));
  auto slots = history.slots(slot(4));
  REQUIRE(slots.size() == 4);
  CHECK(slots[0].waiting == 0);
  CHECK(slots[1].first_token_ms);  // the last in which something happened
  CHECK(slots[3].waiting == 3);
  CHECK(!slots[3].first_token_ms);
  history.set_waiting(0, slot(5));
  slots = history.slots(slot(8));
  CHECK(slots[5].waiting == 3);  // the most at one time
  CHECK(slots[6].waiting == 0);
}

TEST_CASE("an hour is kept, and what was before it is known") {
  RequestHistory history(slot(0));
  history.set_running(7, slot(0));
  constexpr int kEnd = 3 * static_cast<int>(RequestHistory::kSlots);
  CHECK(history.slots(slot(kEnd)).size() == RequestHistory::kSlots);
  CHECK(history.slots(slot(kEnd)).front().running == 7);
  for (int i = 1; i < kEnd; ++i)
    history.add_generation_tokens(static_cast<std::uint64_t>(i), slot(i));
  const auto slots = history.slots(slot(kEnd));
  REQUIRE(slots.size() == RequestHistory::kSlots);
  CHECK(slots.back().generation_tokens == kEnd - 1);
  CHECK(slots.front().generation_tokens == kEnd - RequestHistory::kSlots);
  CHECK(slots.front().running == 7);
}
