#include "tests/actors/router/named_desk.h"

using namespace troupe;
using namespace troupe::testing;

using Tokens = std::vector<TokenId>;

TEST_CASE("a key asked for again gives what was generated, then the rest, each token once") {
  NamedDesk desk;
  CHECK(desk.ask(named("a", "key")).name->id == "a");
  desk.give(1, {7, 8});
  const auto again = desk.ask(named("b", "key"));
  CHECK(again.name->id == "a");
  CHECK(*again.request == 1);
  CHECK(desk.readings[2].tokens == Tokens{7, 8});
  desk.give(1, {9});
  desk.give(1, {10}, FinishReason::kLength);
  for (const std::uint64_t reader : {1, 2}) {
    CHECK(desk.readings[reader].tokens == Tokens{7, 8, 9, 10});
    CHECK(desk.readings[reader].prompts == 1);
    CHECK(desk.readings[reader].done);
  }
  desk.ask(named("c", "key"));  // it is over: all at once
  CHECK(desk.readings[3].tokens == Tokens{7, 8, 9, 10});
  CHECK(desk.readings[3].finish == FinishReason::kLength);
  CHECK(desk.readings[3].done);
  CHECK(desk.router.counts().finished == 1);
}

TEST_CASE("a key belongs to one question and one owner") {
  NamedDesk desk;
  desk.ask(named("a", "key"));
  PreparedRequest other = named("b", "key");
  auto name = std::make_shared<RequestName>(*other.name);
  name->body = {3, 4};
  other.name = name;
  const auto refused = desk.ask(std::move(other));
  REQUIRE(!refused.request.ok());
  CHECK(refused.request.error().code == ErrorCode::kInvalidArgument);
  CHECK(refused.request.error().message.starts_with("Idempotency-Key: "));
  PreparedRequest stranger = named("c", "key");
  name = std::make_shared<RequestName>(*stranger.name);
  name->owner = 6;
  stranger.name = name;
  CHECK(*desk.ask(std::move(stranger)).request == 2);
  CHECK(desk.attach("a", {}, true, 6).request.error().code == ErrorCode::kNotFound);
}

TEST_CASE("a request with a key goes on when its client leaves, another ends") {
  NamedDesk desk;
  desk.ask(named("a", "key"));
  desk.ask(named("b"));
  desk.leave(1, 1);
  desk.leave(2, 2);
  CHECK(desk.router.counts().cancelled == 1);
  desk.give(1, {7, 8, 9, 10}, FinishReason::kLength);
  CHECK(desk.readings[1].tokens.empty());
  desk.attach("a", {1});
  CHECK(desk.readings[3].tokens == Tokens{8, 9, 10});
  CHECK(desk.attach("b").request.error().code == ErrorCode::kNotFound);
}

TEST_CASE("as long as one reads, nobody's leaving ends a request") {
  NamedDesk desk;
  desk.ask(named("a"));
  desk.attach("a");
  desk.leave(1, 1);
  desk.give(1, {7});
  CHECK(desk.readings[2].tokens == Tokens{7});
  CHECK(desk.readings[1].tokens.empty());
  desk.leave(1, 2);
  CHECK(desk.router.counts().cancelled == 1);
}

TEST_CASE("a reader from further on gets what follows, when it comes") {
  NamedDesk desk;
  desk.ask(named("a"));
  desk.give(1, {7});
  desk.attach("a", {3});
  desk.give(1, {8, 9});
  CHECK(desk.readings[2].tokens.empty());
  desk.give(1, {10}, FinishReason::kLength);
  CHECK(desk.readings[2].tokens == Tokens{10});
  CHECK(desk.readings[2].done);
}

TEST_CASE("a look at a request tells what is there, and is over") {
  NamedDesk desk;
  desk.ask(named("a"));
  desk.attach("a", {}, false);
  CHECK(desk.readings[2].tokens.empty());
  CHECK(desk.readings[2].done);
  desk.give(1, {7});
  desk.attach("a", {}, false);
  CHECK(desk.readings[3].tokens == Tokens{7});
  CHECK(desk.readings[3].done);
  CHECK(desk.readings[3].finish == FinishReason::kNone);
  desk.give(1, {8});
  CHECK(desk.readings[1].tokens == Tokens{7, 8});
}

TEST_CASE("text told again is the text that was told, wherever a reader begins") {
  const auto tokenizer = demo_tokenizer();
  const std::string words = "one two STOPPED three";
  const std::vector<TokenId> ids = tokenizer->encode(words, false).value();
  for (std::uint32_t from = 0; from <= ids.size(); ++from) {
    CAPTURE(from);
    NamedDesk desk(keeping(0, nullptr, tokenizer));
    PreparedRequest prepared = named("a", "", static_cast<std::uint32_t>(ids.size()));
    prepared.stop = {"STOPPED t"};
    desk.ask(prepared);
    std::string before;
    for (std::uint32_t i = 0; i < ids.size() && !desk.readings[1].done; ++i) {
      if (i == from) before = desk.readings[1].text;
      desk.give(1, {ids[i]});
    }
    REQUIRE(desk.readings[1].done);
    CHECK(desk.readings[1].text == "one two ");
    if (desk.readings[1].tokens.size() <= from) continue;
    desk.attach("a", {from});
    CHECK(before + desk.readings[2].text == desk.readings[1].text);
    CHECK(desk.readings[2].finish == FinishReason::kStop);
  }
}

// --- Long answers --------------------------------------------------------------------------------

namespace {

std::size_t told_in(const RouterEffects& effects) {
  std::size_t tokens = 0;
  for (const DeliverEvent& delivery : all<DeliverEvent>(effects))
    if (delivery.again) tokens += delivery.event.tokens.size();
  return tokens;
}

/// A request of so many tokens, which has two fewer.
struct LongAnswer : NamedDesk {
  explicit LongAnswer(std::uint32_t tokens, std::string key = "key")
      : NamedDesk(keeping(0, nullptr, demo_tokenizer())), all_tokens(tokens) {
    ask(named("a", std::move(key), tokens));
    for (std::uint32_t i = 0; i < tokens - 2; ++i) give(1, {static_cast<TokenId>(100 + i % 3000)});
  }
  /// Turns that nothing else brings about, until nobody is told any more.
  std::size_t wake_until_told() {
    std::size_t turns = 0;
    for (; wake_at == now; ++turns) {
      RouterEffects effects;
      troupe::wake(router, now, effects);
      CHECK(told_in(effects) <= kToldTokensATurn);
      take(effects);
      read(effects);
    }
    return turns;
  }
  const std::uint32_t all_tokens;
};

}  // namespace

TEST_CASE("a long answer is told in many turns, while everything else goes on") {
  constexpr std::uint32_t kTokens = 4 * kToldTokensATurn + 100;
  LongAnswer desk(kTokens);
  desk.ask(named("b"));
  CHECK(desk.attach("a").request.ok());
  CHECK(desk.readings[3].tokens.size() == kToldTokensATurn);
  CHECK(desk.wake_at == desk.now);
  CHECK(desk.attach("a", {}, false).request.ok());
  CHECK(desk.attach("a", {kTokens - 3}).request.ok());
  desk.give(2, {7});  // another stream
  CHECK(desk.readings[2].tokens == Tokens{7});
  desk.give(1, {8});  // of the same
  CHECK(desk.wake_until_told() > 5);
  const Tokens all = desk.router.journal().find(SequenceId{1})->output;
  CHECK(all.size() == kTokens - 1);
  for (const std::uint64_t reader : {1, 3, 4}) {
    CAPTURE(reader);
    CHECK(desk.readings[reader].tokens == all);
    CHECK(desk.readings[reader].text == desk.readings[1].text);
    CHECK(desk.readings[reader].prompts == 1);
    CHECK(desk.readings[reader].done == (reader == 4));
  }
  CHECK(desk.readings[5].tokens == Tokens{all[kTokens - 3], 8});
  desk.give(1, {9}, FinishReason::kLength);
  for (const std::uint64_t reader : {1, 3, 5}) {
    CHECK(desk.readings[reader].tokens.back() == 9);
    CHECK(desk.readings[reader].done);
  }
  CHECK(desk.readings[3].tokens.size() == kTokens);
}

TEST_CASE("a request may end while it is being told") {
  constexpr std::uint32_t kTokens = 3 * kToldTokensATurn;
  LongAnswer desk(kTokens);
  desk.attach("a");
  desk.attach("a", {}, false);
  CHECK(!desk.readings[2].done);
  SUBCASE("well") {
    desk.give(1, {7, 8}, FinishReason::kLength);
    CHECK(desk.readings[1].done);
    desk.wake_until_told();
    CHECK(desk.readings[2].tokens == desk.readings[1].tokens);
    CHECK(desk.readings[2].text == desk.readings[1].text);
    CHECK(desk.readings[2].finish == FinishReason::kLength);
    CHECK(desk.readings[2].done);
    CHECK(desk.readings[3].tokens.size() == kTokens);
    CHECK(desk.readings[3].done);
  }
  SUBCASE("with an error") {
    desk.wake(std::chrono::seconds(10));
    for (const std::uint64_t reader : {1, 2, 3}) {
      REQUIRE(desk.readings[reader].error);
      CHECK(desk.readings[reader].error->code == ErrorCode::kDeadlineExceeded);
    }
    CHECK(desk.wake_at != desk.now);
  }
  SUBCASE("by its deletion") {
    desk.say(FindRequests{90, "a", 5, true});
    for (const std::uint64_t reader : {1, 2, 3}) REQUIRE(desk.readings[reader].error);
    CHECK(desk.wake_at != desk.now);
  }
  SUBCASE("with the cluster") {
    desk.give(1, {7, 8}, FinishReason::kLength);
    desk.say(RequestsEnd{"It is over."});
    for (const std::uint64_t reader : {2, 3}) {
      CHECK(desk.readings[reader].tokens.size() == kTokens);
      CHECK(desk.readings[reader].done);
    }
  }
}

TEST_CASE("an answer that is over may be forgotten while it is being told") {
  LongAnswer desk(3 * kToldTokensATurn);
  desk.give(1, {7, 8}, FinishReason::kLength);
  desk.attach("a");
  desk.say(FindRequests{90, "a", 5, true});
  desk.wake_until_told();
  REQUIRE(desk.readings[2].error);
  CHECK(desk.readings[2].error->code == ErrorCode::kNotFound);
}

TEST_CASE("who leaves while it is being told hears no more, and ends nothing that others read") {
  LongAnswer desk(3 * kToldTokensATurn, "");
  desk.attach("a");
  desk.attach("a", {}, false);
  desk.leave(1, 3);
  desk.leave(1, 2);
  for (const std::uint64_t reader : {2, 3}) {
    REQUIRE(desk.readings[reader].error);
    CHECK(desk.readings[reader].error->code == ErrorCode::kCancelled);
  }
  CHECK(desk.router.counts().cancelled == 0);
  // The one who is being told keeps it running.
  desk.attach("a");
  desk.leave(1, 1);
  CHECK(desk.router.counts().cancelled == 0);
  desk.wake_until_told();
  CHECK(desk.readings[4].tokens.size() == desk.all_tokens - 2);
  desk.give(1, {7, 8}, FinishReason::kLength);
  CHECK(desk.readings[4].done);
  desk.attach("a");
  desk.leave(1, 5);
  REQUIRE(desk.readings[5].error);
  CHECK(desk.wake_at != desk.now);
}

TEST_CASE("who failed gives its error, and its key is free again") {
  NamedDesk desk;
  desk.ask(named("a", "key"));
  desk.wake(std::chrono::seconds(10));
  CHECK(desk.router.counts().failed == 1);
  desk.attach("a");
  REQUIRE(desk.readings[2].error);
  CHECK(desk.readings[2].error->code == ErrorCode::kDeadlineExceeded);
  CHECK(*desk.ask(named("b", "key")).request == 2);
}

TEST_CASE("who asks again with the key of what crashed heads hears why it is over") {
  const auto journal = std::make_shared<Journal>();
  journal->append(JournalAccepted{1, SequenceId{1}, 0,
                                  std::make_shared<const PreparedRequest>(named("a", "key"))});
  journal->append(JournalCrashes{1, 3, 7});
  journal->append(JournalEnded{1, 0, internal_error("It was given up.")});
  NamedDesk desk(keeping(0, journal));
  CHECK(*desk.ask(named("b", "key")).request == 1);
  REQUIRE(desk.readings[1].error);
  CHECK(desk.readings[1].error->code == ErrorCode::kInternal);
}

TEST_CASE("who failed otherwise frees its key, also if heads have crashed under it") {
  const auto journal = std::make_shared<Journal>();
  journal->append(JournalAccepted{1, SequenceId{1}, 0,
                                  std::make_shared<const PreparedRequest>(named("a", "key"))});
  journal->append(JournalEnded{1, 0, deadline_exceeded("It took too long.")});
  journal->append(JournalCrashes{1, 2, 7});
  NamedDesk desk(keeping(0, journal));
  CHECK(*desk.ask(named("b", "key")).request == 2);
}

TEST_CASE("prompts that came together share a name, and one that was lost is accepted alone") {
  NamedDesk desk;
  const auto prompt = [](std::string id, std::uint32_t index) {
    PreparedRequest prepared = named(std::move(id), "key");
    auto name = std::make_shared<RequestName>(*prepared.name);
    name->index = index;
    name->count = 2;
    prepared.name = name;
    return prepared;
  };
  desk.ask(prompt("a", 0));
  const auto again = desk.ask(prompt("b", 0));
  CHECK(*again.request == 1);
  const auto other = desk.ask(prompt("b", 1));
  CHECK(*other.request == 2);
  CHECK(other.name->id == "a");
  const auto effects = desk.say(FindRequests{90, "a", 5});
  const auto found = all<RequestsFound>(effects);
  REQUIRE(found.size() == 1);
  REQUIRE(found[0].requests.ok());
  CHECK(found[0].requests->size() == 2);
  CHECK((*found[0].requests)[1].state == NamedRequest::State::kQueued);
  desk.say(FindRequests{91, "a", 5, true});
  CHECK(desk.router.counts().cancelled == 2);
  CHECK(desk.router.journal().requests() == 0);
}

TEST_CASE("nobody can have more of an answer than there is or may be") {
  NamedDesk desk;
  desk.ask(named("a"));
  const auto refused = [&](std::uint32_t from) {
    const auto answer = desk.attach("a", {from});
    return !answer.request.ok() && answer.request.error().message.starts_with("from: choice 0");
  };
  CHECK(refused(5));
  desk.give(1, {7});
  CHECK_FALSE(refused(4));  // a head that began again may still have to generate them
  desk.give(1, {8}, FinishReason::kStop);
  CHECK(refused(3));
  CHECK_FALSE(refused(2));
}

TEST_CASE("answers are kept for an hour, then nobody finds them") {
  NamedDesk desk;
  desk.ask(named("a", "key"));
  desk.give(1, {7, 8, 9, 10}, FinishReason::kLength);
  CHECK(desk.router.journal().requests() == 1);
  REQUIRE(desk.wake_at);
  CHECK(*desk.wake_at == desk.now + limits::kFinishedKept);
  desk.wake(limits::kFinishedKept);
  CHECK(desk.router.journal().requests() == 0);
  CHECK(desk.attach("a").request.error().code == ErrorCode::kNotFound);
}

// --- What is kept --------------------------------------------------------------------------------

TEST_CASE("whoever leaves is told that, also where the request goes on") {
  NamedDesk desk;
  desk.ask(named("a", "key"));
  desk.leave(1, 1);
  REQUIRE(desk.readings[1].error);
  CHECK(desk.readings[1].error->code == ErrorCode::kCancelled);
  CHECK(desk.readings[1].done);
  desk.ask(named("b"));
  desk.leave(2, 2);
  REQUIRE(desk.readings[2].error);
  CHECK(desk.router.counts().cancelled == 1);
}

TEST_CASE("answers that are kept take no newcomer's place") {
  NamedDesk desk;
  for (std::uint32_t i = 0; i < 2 * limits::kSequencesMax / limits::kChoicesMax; ++i) {
    PreparedRequest prepared = named("r" + std::to_string(i), "", 1);
    prepared.n = limits::kChoicesMax;
    const auto accepted = desk.ask(std::move(prepared));
    REQUIRE(accepted.request.ok());
    const SequenceId first = desk.router.journal().request(*accepted.request)->first_sequence;
    for (std::uint32_t choice = 0; choice < limits::kChoicesMax; ++choice)
      desk.give(first.value + choice, {7}, FinishReason::kLength);
  }
  CHECK(desk.router.journal().sequences() > limits::kSequencesMax);
}
