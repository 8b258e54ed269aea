#include "actors/router/key_shares.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "actors/router/journal_words.h"
#include "runtime/limits.h"
#include "tests/actors/router/desk.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

constexpr std::uint64_t kFlood = 1, kOther = 2, kBounded = 3;
const KeyShares kShares({{kFlood, 1, 0}, {kOther, 4, 0}, {kBounded, 1, 2}});

PreparedRequest asked_by(std::uint64_t owner, std::size_t length = 3,
                         std::uint32_t max_tokens = 4) {
  PreparedRequest prepared = prompt_of(length, max_tokens);
  static int number = 0;
  RequestName name{.id = "r" + std::to_string(++number), .owner = owner};
  prepared.name = std::make_shared<const RequestName>(std::move(name));
  return prepared;
}

Router::Options with_keys(std::size_t words_max = limits::kJournalWordsMax) {
  Router::Options options;
  options.journal_words_max = words_max;
  options.shares = kShares;
  return options;
}

/// What the journal keeps of such a request, with so many tokens of its answer.
std::size_t words_of(const PreparedRequest& request, std::size_t tokens) {
  return prompt_words(request) + tokens * token_words(request);
}

std::vector<std::uint64_t> sequences(const Desk& desk) {
  std::vector<std::uint64_t> ids;
  for (const auto& [to, submit] : desk.submits) ids.push_back(submit.sequence.value);
  return ids;
}

/// How many requests like that one its owner has then.
std::size_t fill(Room& room, const PreparedRequest& request) {
  static std::uint64_t next = 1;
  std::size_t taken = 0;
  for (; room.takes(request); ++taken, next += request.n) room.add(SequenceId{next}, request);
  CHECK(room.violation() == "");
  return taken;
}

struct PartCase {
  std::uint64_t owner;
  std::size_t held, wanted, total, max;
  bool may;
};
const PartCase kParts[] = {
    {kFlood, 0, 1, 0, 100, true},
    {kFlood, 49, 1, 49, 100, true},     // it has half then
    {kFlood, 50, 1, 50, 100, false},
    {kFlood, 48, 1, 52, 100, false},    // 48 are left
    {kOther, 79, 1, 79, 100, true},     // four times what is left
    {kOther, 80, 1, 80, 100, false},
    {kFlood, 33, 1, 66, 100, true},     // two of one weight: a third each
    {kFlood, 34, 1, 67, 100, false},
    {kFlood, 0, 1, 99, 100, true},      // who has nothing may take the last
    {kFlood, 0, 1, 100, 100, false},
    {kFlood, 0, 100, 0, 100, true},
    {77, 49, 1, 60, 100, false},        // not named: a weight of 1
};

}  // namespace

TEST_CASE("a key's part of what all share") {
  for (const auto& [owner, held, wanted, total, max, may] : kParts) {
    CAPTURE(owner);
    CAPTURE(held);
    CAPTURE(total);
    CHECK(kShares.may_have(owner, held, wanted, total, max) == may);
  }
  const KeyShares one({{kFlood, 1, 0}});
  CHECK(one.may_have(kFlood, 99, 1, 99, 100));
  CHECK(KeyShares().may_have(0, 99, 1, 99, 100));
}

TEST_CASE("a flood fills its own part of the room, in requests, sequences and words") {
  Room requests(limits::kJournalWordsMax, kShares);
  CHECK(fill(requests, asked_by(kFlood)) == limits::kRequestsMax / 2);
  CHECK(fill(requests, asked_by(kOther)) >= limits::kRequestsMax / 3);
  CHECK(requests.takes(asked_by(kBounded)));

  Room choices(limits::kJournalWordsMax, kShares);
  PreparedRequest many = asked_by(kFlood);
  many.n = 128;
  CHECK(fill(choices, many) == limits::kSequencesMax / many.n / 2);
  CHECK(choices.takes(asked_by(kBounded)));

  Room words(100 * words_of(asked_by(kFlood, 90, 10), 10), kShares);
  CHECK(fill(words, asked_by(kFlood, 90, 10)) == 50);
  CHECK(words.takes(asked_by(kBounded, 90, 10)));
}

TEST_CASE("without keys, and with one, all of the room is there for all") {
  Room open(10'000);
  CHECK(fill(open, prompt_of(90, 10)) == 100);
  Room one(100 * words_of(asked_by(kFlood, 90, 10), 10), KeyShares({{kFlood, 1, 0}}));
  CHECK(fill(one, asked_by(kFlood, 90, 10)) == 100);
}

TEST_CASE("who floods is told to come later, and may come when something of it has ended") {
  Desk desk(1, with_keys(10 * words_of(asked_by(kFlood, 90, 10), 10)));
  for (int i = 0; i < 5; ++i) desk.submit(asked_by(kFlood, 90, 10));
  const auto refused = desk.ask(asked_by(kFlood, 90, 10));
  REQUIRE(!refused.ok());
  CHECK(refused.error().code == ErrorCode::kResourceExhausted);
  desk.submit(asked_by(kBounded, 90, 10));
  CHECK(!desk.ask(asked_by(kFlood, 90, 10)).ok());
  desk.tokens(1, {}, FinishReason::kLength);
  desk.submit(asked_by(kFlood, 90, 10));
}

TEST_CASE("those pause whose owner holds the most, and others come in meanwhile") {
  constexpr std::uint32_t kAhead = kCountedAheadMax;
  const std::vector<TokenId> many(kAhead, 8);
  Desk desk(1, with_keys(5 * words_of(asked_by(kFlood, 10, kAhead), kAhead)));
  desk.submit(asked_by(kFlood, 10, 3 * kAhead));   // 1
  desk.submit(asked_by(kFlood, 10, 3 * kAhead));   // 2
  desk.submit(asked_by(kOther, 10, kAhead));       // 3, the newest
  desk.tokens(1, many);
  desk.tokens(2, many);
  desk.tokens(1, many);
  REQUIRE(desk.cancels.size() == 1);
  CHECK(desk.cancels[0].second.sequence == SequenceId{2});
  CHECK(!desk.ask(asked_by(kFlood, 1, 1)).ok());
  CHECK(desk.ask(asked_by(kBounded, 1, 1)).ok());
}

TEST_CASE("a key's requests beyond max-running wait for one of its own to end") {
  Desk desk(2, with_keys());
  PreparedRequest two = asked_by(kBounded);
  two.n = 2;
  desk.submit(two);                  // 1 and 2: one request
  desk.submit(asked_by(kBounded));   // 3
  desk.submit(asked_by(kBounded));   // 4 waits
  desk.submit(asked_by(kBounded));   // 5 waits
  desk.submit(asked_by(kOther));     // 6 does not
  CHECK(sequences(desk) == std::vector<std::uint64_t>{1, 2, 3, 6});
  CHECK(desk.router.counts().waiting == 5);
  const auto at = [&](std::uint64_t id) {
    for (const auto& [to, submit] : desk.submits)
      if (submit.sequence.value == id) return to.actor.index;
    return ~0u;
  };
  desk.tokens(1, {}, FinishReason::kLength, at(1));
  CHECK(desk.submits.size() == 4);  // its other choice still runs
  desk.tokens(2, {}, FinishReason::kLength, at(2));
  CHECK(sequences(desk).back() == 4);
  desk.say(CancelRequest{3, 3});
  CHECK(sequences(desk).back() == 5);
  CHECK(desk.submits.size() == 6);
}

TEST_CASE("a replay keeps its place within max-running") {
  Desk desk(2, with_keys());
  desk.submit(asked_by(kBounded));  // 1, at 0
  desk.submit(asked_by(kBounded));  // 2, at 1
  desk.submit(asked_by(kBounded));  // 3 waits
  REQUIRE(sequences(desk) == std::vector<std::uint64_t>{1, 2});
  desk.tokens(1, {5}, FinishReason::kNone, desk.submits[0].first.actor.index);
  desk.lose(desk.submits[0].first.actor.index);
  CHECK(sequences(desk) == std::vector<std::uint64_t>{1, 2, 1});
}

TEST_CASE("of a key's requests lower priorities go first, and replicas hear whose all are") {
  Desk desk(0, with_keys());
  desk.admit(true);
  const auto ask = [&](std::uint64_t owner, std::int32_t priority) {
    PreparedRequest request = asked_by(owner);
    request.priority = priority;
    desk.submit(std::move(request));
  };
  ask(kBounded, 3);   // 1
  ask(kBounded, 0);   // 2
  ask(kBounded, -3);  // 3
  desk.serve(1);
  CHECK(sequences(desk) == std::vector<std::uint64_t>{3, 2});
  ask(kOther, 9);
  const Submit& last = desk.submits.back().second;
  CHECK(last.owner == kOther);
  CHECK(last.weight == 4);
  CHECK(last.priority == 9);
}

TEST_CASE("what a flood's prompts fill of a replica's queue leaves room for others'") {
  Desk desk(1, with_keys());
  constexpr std::size_t kLong = kUnstartedTokensMax / 8;
  for (int i = 0; i < 20; ++i) desk.submit(asked_by(kFlood, kLong));
  CHECK(desk.submits.size() == 4);
  desk.submit(asked_by(kOther, kLong));
  REQUIRE(desk.submits.size() == 5);
  CHECK(desk.submits.back().second.owner == kOther);
  desk.start(1);
  CHECK(desk.submits.size() == 6);  // three of the flood and one other waited there: half was left
  CHECK(desk.submits.back().second.owner == kFlood);
}

TEST_CASE("what comes free is kept for who has nothing there, whatever a flood weighs") {
  constexpr std::size_t kLong = kUnstartedTokensMax / 8;
  Router::Options options = with_keys();
  options.shares = KeyShares({{kFlood, 100, 0}, {kOther, 1, 0}});
  for (const bool replayed : {false, true}) {
    CAPTURE(replayed);
    Desk desk(replayed ? 0 : 1, options);
    if (replayed) desk.admit(true);
    for (int i = 0; i < 20; ++i) desk.submit(asked_by(kFlood, kLong));
    desk.submit(asked_by(kOther, 2 * kLong));  // 21
    if (replayed) desk.serve(1);
    for (std::uint64_t id = 1; id <= 3 && !replayed; ++id) {
      const auto handed = sequences(desk);
      desk.start(handed.at(id - 1));
    }
    const auto handed = sequences(desk);
    CHECK(std::ranges::find(handed, 21) != handed.end());
    CHECK(handed.size() >= 7);
  }
}

TEST_CASE("a restored request is its owner's as before, with its priority") {
  Desk before(1, with_keys());
  PreparedRequest request = asked_by(kBounded);
  request.priority = -2;
  before.submit(request);
  before.submit(asked_by(kBounded));
  before.submit(asked_by(kBounded));
  Router::Options next = with_keys();
  next.journal = std::make_shared<Journal>(before.router.journal());
  Desk after(1, std::move(next));
  CHECK(sequences(after) == std::vector<std::uint64_t>{1, 2});  // two may run
  CHECK(after.submits[0].second.owner == kBounded);
  CHECK(after.submits[0].second.priority == -2);
}
