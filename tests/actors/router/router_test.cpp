#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "runtime/limits.h"
#include "tests/actors/router/desk.h"

using namespace troupe;
using namespace troupe::testing;
using namespace std::chrono_literals;

TEST_CASE("requests are listed, the oldest first, until they are over") {
  Desk desk;
  PreparedRequest two = prompt_of(3, 5);
  two.n = 2;
  const std::uint64_t first = desk.submit(two);
  desk.now += 1s;
  const std::uint64_t second = desk.submit(prompt_of(4, 5));
  desk.tokens(1, {8, 9});
  desk.tokens(2, {7});
  const auto list = desk.router.list(9);
  REQUIRE(list.size() == 2);
  CHECK(list[0].id == first);
  CHECK(list[0].running);
  CHECK(list[0].replica == 0);
  CHECK(list[0].prompt_tokens == 3);
  CHECK(list[0].tokens == 3);
  CHECK(list[0].accepted == TimePoint{});
  CHECK(list[1].id == second);
  CHECK_FALSE(list[1].running);
  CHECK(list[1].tokens == 0);
  REQUIRE(desk.router.list(1).size() == 1);
  CHECK(desk.router.list(1)[0].id == first);
  desk.tokens(1, {1}, FinishReason::kStop);
  desk.tokens(2, {1}, FinishReason::kStop);
  REQUIRE(desk.router.list(9).size() == 1);
  CHECK(desk.router.list(9)[0].id == second);
}

TEST_CASE("a request becomes a submission with a seed, and its tokens come back once") {
  Desk desk;
  desk.submit(prompt_of(3, 5));
  REQUIRE(desk.submits.size() == 1);
  CHECK(desk.submits[0].second.sampling.seed == 777);
  CHECK(desk.submits[0].second.prompt.size() == 3);
  CHECK(desk.router.counts().waiting == 1);

  SequenceEvent e;
  e.sequence = SequenceId{1};
  e.started = true;
  desk.now += 20ms;
  desk.event(e);
  CHECK(desk.events.empty());
  CHECK(desk.router.counts().running == 1);
  e.started = false;
  e.tokens = {{8, -0.5f, {}}};
  desk.now += 5ms;
  desk.event(e);
  desk.event(e);  // A duplicate.
  REQUIRE(desk.events.size() == 1);
  CHECK(desk.events[0].prompt_tokens.size() == 3);
  CHECK(desk.events[0].tokens == e.tokens);
  CHECK(desk.events[0].timing.queued_ms == doctest::Approx(20));
  CHECK(desk.events[0].timing.first_token_ms == doctest::Approx(25));
  desk.tokens(1, {9, 1}, FinishReason::kStop);
  REQUIRE(desk.events.size() == 2);
  CHECK(desk.events[1].prompt_tokens.empty());
  CHECK(desk.events[1].finish == FinishReason::kStop);
  CHECK(desk.events[1].request_done);
  CHECK(desk.events[1].timing.total_ms == doctest::Approx(25));
  CHECK(desk.cancels.empty());
  CHECK(desk.router.counts().finished == 1);
  CHECK(desk.router.journal().requests() == 0);
  CHECK(!desk.wake_at);
}

TEST_CASE("what happens to a request is measured") {
  Desk desk;
  desk.submit(prompt_of(3, 5));
  desk.now += 20ms;
  desk.tokens(1, {8});
  desk.now += 10ms;
  desk.tokens(1, {9, 1}, FinishReason::kStop);
  using Kind = RequestObservation::Kind;
  const std::pair<Kind, double> expected[] = {
      {Kind::kPromptTokens, 3},  {Kind::kMaxTokens, 5},        {Kind::kQueueTime, 0.02},
      {Kind::kGenerationTokens, 1},
      {Kind::kFirstToken, 0.02}, {Kind::kGenerationTokens, 2}, {Kind::kInterToken, 0.005},
      {Kind::kEndToEnd, 0.03},
  };
  REQUIRE(desk.observed.size() == std::size(expected));
  for (std::size_t i = 0; i < desk.observed.size(); ++i) {
    CAPTURE(i);
    CHECK(desk.observed[i].kind == expected[i].first);
    CHECK(desk.observed[i].value == doctest::Approx(expected[i].second));
  }
}

TEST_CASE("a seed of the request's own is kept, and every choice is a sequence") {
  Desk desk(2);
  PreparedRequest prepared = prompt_of(3, 5);
  prepared.seed = 5;
  prepared.n = 3;
  desk.submit(prepared);
  REQUIRE(desk.submits.size() == 3);
  for (std::uint32_t choice = 0; choice < 3; ++choice) {
    CHECK(desk.submits[choice].second.sampling.seed == 5);
    CHECK(desk.submits[choice].second.sampling.choice == choice);
    CHECK(desk.submits[choice].first == replica_address(choice % 2));
  }
}

TEST_CASE("text is decoded, and the stop token has none") {
  Desk desk(1, demo_tokenizer());
  const auto ids = demo_tokenizer()->encode("héllo wörld", false).value();
  desk.submit(prompt_of(3, 50));
  for (const TokenId id : ids) desk.tokens(1, {id});
  desk.tokens(1, {1}, FinishReason::kStop);
  CHECK(desk.text() == "héllo wörld");
}

TEST_CASE("no part of a stop string gets out; the replica is told to stop") {
  Desk desk(1, demo_tokenizer());
  PreparedRequest prepared = prompt_of(3, 50);
  prepared.stop = {"wörld", "never"};
  desk.submit(prepared);
  const auto ids = demo_tokenizer()->encode("héllo wo wörld and more", false).value();
  const std::string wanted = "héllo wo ";
  for (const TokenId id : ids) {
    if (!desk.router.journal().find(SequenceId{1})) break;
    desk.tokens(1, {id});
    CHECK(wanted.starts_with(desk.text()));
  }
  CHECK(desk.text() == wanted);
  CHECK(desk.events.back().finish == FinishReason::kStop);
  CHECK(desk.events.back().request_done);
  REQUIRE(desk.cancels.size() == 1);
  CHECK(desk.cancels[0].second.sequence.value == 1);
}

TEST_CASE("held-back text comes out when the tokens end") {
  Desk desk(1, demo_tokenizer());
  PreparedRequest prepared = prompt_of(3, 50);
  prepared.stop = {"hello world!"};
  desk.submit(prepared);
  const auto ids = demo_tokenizer()->encode("hello world", false).value();
  desk.tokens(1, ids, FinishReason::kLength);
  CHECK(desk.text() == "hello world");
  CHECK(desk.events.back().finish == FinishReason::kLength);
}

TEST_CASE("old attempts, strangers and old lives of a node change nothing") {
  Desk desk(2);
  desk.submit(prompt_of(3, 5));
  SequenceEvent e;
  e.sequence = SequenceId{1};
  e.tokens = {{8, 0, {}}};
  desk.event(e, 1);  // Not the replica that holds it: told to stop.
  REQUIRE(desk.cancels.size() == 1);
  CHECK(desk.cancels[0].first == replica_address(1));
  e.attempt = 4;
  desk.event(e, 0);
  e.sequence = SequenceId{99};
  desk.event(e, 0);
  CHECK(desk.cancels.size() == 3);
  CHECK(desk.events.empty());
  CHECK(desk.router.journal().find(SequenceId{1})->output.empty());
}

TEST_CASE("an error of one choice ends the request and cancels the others") {
  Desk desk;
  PreparedRequest prepared = prompt_of(3, 5);
  prepared.n = 3;
  desk.submit(prepared);
  SequenceEvent e;
  e.sequence = SequenceId{2};
  e.error = resource_exhausted("too long");
  desk.event(e);
  REQUIRE(desk.events.size() == 1);
  CHECK(desk.events[0].error->message == "too long");
  CHECK(desk.events[0].request_done);
  CHECK(desk.cancels.size() == 3);
  CHECK(desk.router.journal().sequences() == 0);
}

TEST_CASE("only the last choice's last event says that the request is done") {
  Desk desk;
  PreparedRequest prepared = prompt_of(3, 1);
  prepared.n = 2;
  desk.submit(prepared);
  desk.tokens(2, {9}, FinishReason::kLength);
  desk.tokens(1, {8}, FinishReason::kLength);
  REQUIRE(desk.events.size() == 2);
  CHECK(desk.events[0].choice == 1);
  CHECK(!desk.events[0].request_done);
  CHECK(desk.events[1].choice == 0);
  CHECK(desk.events[1].request_done);
}

TEST_CASE("prompt log-probabilities are gathered and come with the first event") {
  Desk desk;
  PreparedRequest prepared = prompt_of(4, 2);
  prepared.prompt_logprobs = 0;
  prepared.n = 2;
  desk.submit(prepared);
  CHECK(desk.submits[0].second.prompt_logprobs == 0);
  CHECK(desk.submits[1].second.prompt_logprobs == -1);
  desk.tokens(2, {9});
  SequenceEvent e;
  e.sequence = SequenceId{1};
  e.prompt_index = 1;
  e.prompt_logprobs = {{42, -1, {}}, {42, -2, {}}};
  desk.event(e);
  desk.event(e);
  CHECK(desk.events.empty());
  e.prompt_index = 3;
  e.prompt_logprobs = {{42, -3, {}}};
  desk.event(e);
  REQUIRE(desk.events.size() == 1);
  CHECK(desk.events[0].choice == 1);
  REQUIRE(desk.events[0].prompt_logprobs.size() == 3);
  CHECK(desk.events[0].prompt_logprobs[2].logprob == -3);
  desk.tokens(1, {9});
  CHECK(desk.events[1].prompt_logprobs.empty());
}

TEST_CASE("deadlines and cancellations end a request and free the replica") {
  Desk desk;
  desk.submit(prompt_of(3, 5));
  const auto second = desk.submit(prompt_of(3, 5));
  desk.say(CancelRequest{second});
  desk.say(CancelRequest{second});
  REQUIRE(desk.events.size() == 1);
  CHECK(desk.events[0].error->code == ErrorCode::kCancelled);
  CHECK(desk.wake_at == TimePoint{} + 10s);
  desk.wake(9s);
  CHECK(desk.events.size() == 1);
  desk.wake(1s);
  REQUIRE(desk.events.size() == 2);
  CHECK(desk.events[1].error->code == ErrorCode::kDeadlineExceeded);
  CHECK(desk.cancels.size() == 2);
  CHECK(desk.router.counts().cancelled == 1);
  CHECK(desk.router.counts().failed == 1);
}

TEST_CASE("a cluster that was never ready says so") {
  Desk desk;
  desk.router = Router{Router::Options{}};
  const auto refused = desk.ask(prompt_of(3, 5));
  REQUIRE(!refused.ok());
  CHECK(refused.error().code == ErrorCode::kUnavailable);
  CHECK(refused.error().message.find("not ready yet") != std::string::npos);
}

TEST_CASE("the Router accepts as many requests as it may") {
  Desk desk;
  RouterEffects effects;  // carried out by nobody: the Desk's own turns check all that it holds
  for (std::size_t i = 0; i < limits::kRequestsMax; ++i)
    turn(desk.router, SubmitRequest{i, prompt_of(1, 1), 1}, desk.now, effects);
  for (const auto& answer : all<RequestAccepted>(effects)) REQUIRE(answer.request.ok());
  const auto refused = desk.ask(prompt_of(1, 1));
  REQUIRE(!refused.ok());
  CHECK(refused.error().code == ErrorCode::kResourceExhausted);
}

TEST_CASE("one request cannot fill the control lane with copies of its prompt") {
  Desk desk;
  PreparedRequest request = prompt_of(163'840, 1);
  request.n = 128;
  const auto refused = desk.ask(std::move(request));
  REQUIRE(!refused.ok());
  CHECK(refused.error().code == ErrorCode::kInvalidArgument);
  CHECK(refused.error().message.rfind("n: ", 0) == 0);
  CHECK(desk.submits.empty());
}

TEST_CASE("a request has its number before it is submitted, and its tokens come before its end") {
  Desk desk;
  const RouterEffects accepted = desk.say(SubmitRequest{5, prompt_of(3, 1), 1});
  // RequestAccepted, the measured prompt and bound, Submit, RequestsChanged
  REQUIRE(accepted.list().size() == 5);
  CHECK(std::get<RequestAccepted>(accepted.list()[0]).ticket == 5);
  CHECK(std::holds_alternative<RequestObservation>(accepted.list()[1]));
  CHECK(std::holds_alternative<RequestObservation>(accepted.list()[2]));
  CHECK(std::holds_alternative<Send>(accepted.list()[3]));
  CHECK(std::holds_alternative<RequestsChanged>(accepted.list()[4]));

  PreparedRequest two = prompt_of(3, 1);
  two.n = 2;
  desk.submit(two);
  SequenceEvent tokens, error;
  tokens.sequence = SequenceId{2};
  tokens.tokens = {{8, 0, {}}};
  error.sequence = SequenceId{3};
  error.error = internal_error("broken");
  const RouterEffects ended = desk.say(Envelope{
      replica_address(0), kRouterSelf, message_of(SequenceEvents{0, {tokens, error}})});
  const auto events = all<DeliverEvent>(ended);
  REQUIRE(events.size() == 2);
  CHECK(events[0].event.tokens.size() == 1);
  CHECK(events[1].event.error);
  CHECK(std::holds_alternative<RequestsChanged>(ended.list().back()));
}

TEST_CASE("a turn in which nothing changes tells nobody") {
  Desk desk;
  CHECK(desk.say(CancelRequest{9}).list().empty());
  const std::uint64_t request = desk.submit(prompt_of(3, 1));
  CHECK(all<RequestsChanged>(desk.say(CancelRequest{request})).size() == 1);
  CHECK(desk.say(CancelRequest{request}).list().empty());
}
