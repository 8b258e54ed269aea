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
  desk.attach("a", {9});  // further than it ever came
  CHECK(desk.readings[3].tokens.empty());
  CHECK(desk.readings[3].finish == FinishReason::kLength);
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
