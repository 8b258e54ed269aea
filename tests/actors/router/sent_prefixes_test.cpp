#include "actors/router/sent_prefixes.h"

#include <doctest/doctest.h>

#include <vector>

#include "tests/actors/router/desk.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

std::vector<TokenId> numbered(std::size_t length, TokenId first) {
  std::vector<TokenId> tokens(length, first);
  for (std::size_t i = 0; i < length; ++i) tokens[i] += static_cast<TokenId>(i);
  return tokens;
}

PreparedRequest asking(std::vector<TokenId> prompt, std::uint32_t max_tokens = 10) {
  PreparedRequest prepared = prompt_of(1, max_tokens);
  prepared.prompt = std::move(prompt);
  return prepared;
}

}  // namespace

TEST_CASE("the beginning that two sequences share is known by whole pieces") {
  const std::vector<TokenId> tokens = numbered(100, 5);
  SentPrefixes sent;
  CHECK(sent.tokens_of(prefix_chain(tokens, {})) == 0);
  sent.add(prefix_chain(tokens, {}));
  CHECK(sent.pieces() == 3);
  CHECK(sent.tokens_of(prefix_chain(tokens, {})) == 96);
  const std::span whole(tokens);
  CHECK(sent.tokens_of(prefix_chain(whole.first(70), whole.last(30))) == 96);
  CHECK(sent.tokens_of(prefix_chain(whole.first(31), {})) == 0);
  for (const std::size_t changed : {0u, 31u, 32u, 95u, 96u}) {
    std::vector<TokenId> other = tokens;
    other[changed] = -1;
    CHECK(sent.tokens_of(prefix_chain(other, {})) == changed / 32 * 32);
  }
}

TEST_CASE("the oldest pieces are forgotten, the end of a sequence before its beginning") {
  SentPrefixes sent;
  const PrefixChain first = prefix_chain(numbered(96, 0), {});
  sent.add(first);
  for (std::size_t i = 0; i + 1 < kPrefixPiecesMax; ++i) sent.add({i + 1});
  CHECK(sent.pieces() == kPrefixPiecesMax);
  CHECK(sent.tokens_of(first) == 32);
  sent.add({~std::uint64_t{0}});
  CHECK(sent.tokens_of(first) == 0);
  CHECK(sent.pieces() == kPrefixPiecesMax);
}

TEST_CASE("no more is remembered of a replica than its cache holds, and nothing that it forgot") {
  Desk desk(0);
  const auto goes = [&](std::vector<TokenId> prompt) {
    desk.submits.clear();
    desk.submit(asking(std::move(prompt)));
    return desk.submits.back().first;
  };
  const std::vector<TokenId> shared = numbered(320, 0), other = numbered(320, 9000);
  std::uint64_t cache_tokens = 640;
  Address expected = replica_address(0);
  SUBCASE("it has both") {}
  SUBCASE("it has room for the last one") {
    cache_tokens = 320;
    expected = replica_address(1);
  }
  SUBCASE("it was told to forget") { expected = replica_address(1); }
  desk.say(ReplicasChanged{PlacementVersion{1},
                           {{0, replica_address(0), false, cache_tokens},
                            {1, replica_address(1), false, cache_tokens}}});
  REQUIRE(goes(shared) == replica_address(0));
  REQUIRE(goes(numbered(640, 5000)) == replica_address(1));
  REQUIRE(goes(other) == replica_address(0));
  if (cache_tokens == 640 && expected == replica_address(1)) desk.say(PrefixesForgotten{{0}});
  CHECK(goes(shared) == expected);  // there is less to do at the second
}

TEST_CASE("what a replica answered is found there as well") {
  Desk desk(2);
  const std::vector<TokenId> turn = numbered(200, 0);
  desk.submit(asking(numbered(32, 0), 168));
  REQUIRE(desk.submits.back().first == replica_address(0));
  desk.start(1);
  Address expected = replica_address(0);
  SUBCASE("it keeps it") {}
  SUBCASE("it was told to forget meanwhile") {
    desk.say(PrefixesForgotten{{0}});
    expected = replica_address(1);
  }
  desk.tokens(1, {turn.begin() + 32, turn.end()}, FinishReason::kLength);
  desk.submit(asking(numbered(300, 9000)));
  REQUIRE(desk.submits.back().first == replica_address(0));
  desk.submit(asking(turn));  // 310 tokens are outstanding there
  CHECK(desk.submits.back().first == expected);
}

TEST_CASE("a sequence goes where one began alike, until that replica is gone") {
  Desk desk(3);
  const auto went = [&] { return desk.submits.back().first; };
  const std::vector<TokenId> shared = numbered(400, 0);
  desk.submit(asking(numbered(64, 9000)));
  CHECK(went() == replica_address(0));
  desk.submit(asking(shared));
  CHECK(went() == replica_address(1));
  // The others have less to do.
  std::vector<TokenId> longer = shared;
  longer.push_back(3);
  desk.submit(asking(longer));
  CHECK(went() == replica_address(1));
  // Too much to do there.
  desk.submit(asking(numbered(64, 9000), 2000));
  desk.submit(asking(shared, 3000));
  desk.submit(asking(shared, 3000));
  CHECK(went() != replica_address(1));

  desk.lose(1);
  desk.serve(3);
  desk.submits.clear();
  desk.submit(asking(numbered(400, 5000)));
  const Address fresh = went();
  desk.submit(asking(numbered(400, 5000)));
  CHECK(went() == fresh);
}

TEST_CASE("where nothing is kept, only what there is to do counts") {
  Desk desk(2, Router::Options{.tokenizer = nullptr, .prefix_caching = false});
  desk.submit(asking(numbered(400, 0)));
  desk.submit(asking(numbered(400, 0)));
  CHECK(desk.submits[0].first == replica_address(0));
  CHECK(desk.submits[1].first == replica_address(1));
}

TEST_CASE("a client and the metrics hear how much of a prompt was found") {
  Desk desk;
  PreparedRequest prepared = prompt_of(40, 5);
  prepared.n = 2;
  desk.submit(prepared);
  const auto start = [&](std::uint64_t sequence, std::int32_t cached) {
    SequenceEvent e;
    e.sequence = SequenceId{sequence};
    e.attempt = desk.router.journal().find(e.sequence)->attempt;
    e.index = static_cast<std::uint32_t>(desk.router.journal().find(e.sequence)->output.size());
    e.started = true;
    e.cached_tokens = cached;
    desk.event(e);
  };
  start(1, 16);
  start(2, 32);
  desk.tokens(1, {8, 9});
  REQUIRE(desk.events.size() == 1);
  CHECK(desk.events[0].prompt_tokens.size() == 40);
  CHECK(desk.events[0].cached_tokens == 16);
  desk.lose(0);
  desk.serve(2, 1);
  SequenceEvent replay;
  replay.sequence = SequenceId{1};
  replay.attempt = 1;
  replay.index = 2;
  replay.started = true;
  replay.cached_tokens = 41;
  desk.event(replay, 1);
  double queries = 0, hits = 0;
  for (const RequestObservation& seen : desk.observed) {
    if (seen.kind == RequestObservation::Kind::kPrefixQueries) queries += seen.value;
    if (seen.kind == RequestObservation::Kind::kPrefixHits) hits += seen.value;
  }
  CHECK(queries == 40 + 40 + 42);
  CHECK(hits == 16 + 32 + 41);
}
