#include <doctest/doctest.h>

#include <map>
#include <random>
#include <vector>

#include "actors/router/room.h"
#include "tests/actors/router/desk.h"

using namespace troupe;
using namespace troupe::testing;

TEST_CASE("newcomers are refused before anybody who was accepted lacks room") {
  Desk desk(1, Router::Options{nullptr, 60});
  desk.submit(prompt_of(10, 9));
  PreparedRequest two = prompt_of(10, 9);
  two.n = 2;  // One prompt, two outputs.
  desk.submit(two);
  const auto refused = desk.ask(prompt_of(10, 4));
  REQUIRE(!refused.ok());
  CHECK(refused.error().code == ErrorCode::kResourceExhausted);
  desk.submit(prompt_of(10, 3));
  CHECK(desk.events.empty());
  // Who is accepted comes to all of its tokens.
  for (const std::uint64_t id : {1, 2, 3}) desk.tokens(id, {2, 3, 4, 5, 6, 7, 8, 9, 10});
  desk.tokens(4, {2, 3, 4});
  CHECK(desk.router.journal().words() == 60);
  CHECK(desk.cancels.empty());
  desk.tokens(1, {}, FinishReason::kLength);
  CHECK(desk.router.counts().failed == 0);
  desk.submit(prompt_of(10, 9));
}

TEST_CASE("what outgrows the room pauses, the newest first, and goes on by replay") {
  constexpr std::uint32_t kAhead = kCountedAheadMax;
  const std::vector<TokenId> many(kAhead, 8);
  Desk desk(1, Router::Options{nullptr, 3 * (20 + kAhead)});
  for (int i = 0; i < 3; ++i) desk.submit(prompt_of(10, 3 * kAhead));
  desk.tokens(2, {5});
  desk.tokens(3, {5, 6});
  CHECK(desk.cancels.empty());
  desk.tokens(1, many);
  // The first may come to as much again: the third stops for that.
  REQUIRE(desk.cancels.size() == 1);
  CHECK(desk.cancels[0].second.sequence == SequenceId{3});
  CHECK(!desk.ask(prompt_of(1, 1)).ok());  // Nobody comes before those who pause.
  desk.tokens(2, {5});
  desk.tokens(1, many);
  REQUIRE(desk.cancels.size() == 2);  // The second, too: the oldest goes on in any case.
  CHECK(desk.cancels[1].second.sequence == SequenceId{2});
  desk.submits.clear();
  desk.tokens(1, many, FinishReason::kLength);
  REQUIRE(desk.submits.size() == 2);
  CHECK(desk.submits[0].second.output == std::vector<TokenId>{5, 5});
  CHECK(desk.submits[1].second.sequence == SequenceId{3});
  CHECK(desk.submits[1].second.output == std::vector<TokenId>{5, 6});
  for (const std::uint64_t id : {2, 3}) desk.tokens(id, {1}, FinishReason::kStop);
  CHECK(desk.router.counts().finished == 3);
  CHECK(desk.router.counts().failed == 0);
}

TEST_CASE("one that pauses may be cancelled, and those that pause never outlive who goes on") {
  const std::vector<TokenId> many(kCountedAheadMax, 8);
  Desk desk(2, Router::Options{nullptr, 2 * (10 + kCountedAheadMax)});
  for (int i = 0; i < 2; ++i) desk.submit(prompt_of(10, 3 * kCountedAheadMax));
  desk.tokens(1, many);
  REQUIRE(desk.cancels.size() == 1);
  SUBCASE("the one that pauses") { desk.say(CancelRequest{2}); }
  SUBCASE("the one that goes on") {
    desk.say(CancelRequest{1});
    CHECK(desk.submits.back().second.sequence == SequenceId{2});
  }
  SUBCASE("its replica is lost meanwhile") {
    desk.lose(1);
    desk.lose(0);
    desk.serve(3, 2);
    CHECK(desk.submits.back().second.sequence == SequenceId{1});
  }
}

TEST_CASE("seeded: the room is counted exactly, and everybody comes to an end") {
  struct Running {
    PreparedRequest request;
    std::vector<std::size_t> left;
  };
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    constexpr std::size_t kMax = 4 * kCountedAheadMax;
    Room room(kMax);
    std::map<SequenceId, Running> running;
    std::map<SequenceId, bool> paused;
    std::uint64_t next = 1;
    std::size_t accepted = 0, ended = 0, pauses = 0;
    for (int turn = 0; turn < 3000; ++turn) {
      PreparedRequest request = prompt_of(1 + random() % 100, 1 + random() % 20'000);
      request.n = 1 + static_cast<std::uint32_t>(random() % 2);
      if (turn < 2000 && room.takes(request)) {
        CHECK(room.counted() <= kMax);
        room.add(SequenceId{next}, request);
        running[SequenceId{next}] = {request, {}};
        running[SequenceId{next}].left.assign(request.n, request.max_tokens);
        next += request.n;
        ++accepted;
      }
      for (auto it = running.begin(); it != running.end();) {
        auto& [first, r] = *it;
        bool over = true;
        for (std::uint32_t choice = 0; choice < r.request.n; ++choice) {
          const SequenceId id{first.value + choice};
          if (r.left[choice] > 0 && !paused[id]) {
            const std::size_t tokens = std::min<std::size_t>(r.left[choice], random() % 600);
            room.grow(id, tokens);
            r.left[choice] -= tokens;
            if (r.left[choice] == 0) room.finish(id);
          }
          over = over && r.left[choice] == 0;
        }
        ended += over ? 1 : 0;
        if (over) room.remove(first, r.request);
        it = over ? running.erase(it) : std::next(it);
      }
      while (const auto id = room.pause_one()) paused[*id] = true, ++pauses;
      while (const auto id = room.resume_one()) paused[*id] = false;
      REQUIRE(room.violation() == "");
    }
    CHECK(ended == accepted);
    CHECK(accepted > 10);
    CHECK(pauses > 0);
    CHECK(room.counted() == 0);
  }
}
