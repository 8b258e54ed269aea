#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "tests/actors/router/desk.h"

using namespace troupe;
using namespace troupe::testing;
using namespace std::chrono_literals;

TEST_CASE("a sequence is handed over again from where the journal ends") {
  Desk desk;
  desk.submit(prompt_of(3, 5));
  desk.tokens(1, {8, 9});
  SequenceEvent gap;
  gap.sequence = SequenceId{1};
  gap.index = 4;  // Tokens in between are missing.
  gap.tokens = {{8, 0, {}}};
  desk.event(gap);
  REQUIRE(desk.submits.size() == 2);
  CHECK(desk.submits[1].second.attempt == 1);
  CHECK(desk.submits[1].second.output == std::vector<TokenId>{8, 9});
  CHECK(desk.submits[1].second.sampling.seed == 777);

  SequenceEvent refusal;
  refusal.sequence = SequenceId{1};
  refusal.attempt = 1;
  refusal.index = 2;
  refusal.error = unavailable("not started");
  desk.event(refusal);
  CHECK(desk.submits.size() == 2);  // Not at once to where it was refused.
  CHECK(desk.wake_at == desk.now + 2 * kRetryPauseMin);
  desk.wake(2 * kRetryPauseMin);
  REQUIRE(desk.submits.size() == 3);
  CHECK(desk.router.counts().replayed == 2);
  CHECK(desk.events.size() == 1);
  desk.tokens(1, {10, 11, 12}, FinishReason::kLength);
  CHECK(desk.events.back().request_done);
}

TEST_CASE("refusals without end fail the request, after pauses that grow") {
  Desk desk;
  PreparedRequest patient = prompt_of(3, 5);
  patient.timeout = 1000s;
  desk.submit(patient);
  const TimePoint start = desk.now;
  for (std::uint32_t attempt = 0; desk.events.empty(); ++attempt) {
    REQUIRE(attempt <= kFailedAttemptsMax);
    desk.refuse(1, deadline_exceeded("too slow"));
    if (!desk.events.empty()) break;
    REQUIRE(desk.wake_at);
    CHECK(*desk.wake_at - desk.now <= kRetryPauseMax);
    desk.wake(*desk.wake_at - desk.now);
  }
  CHECK(desk.submits.size() == kFailedAttemptsMax);
  CHECK(desk.now - start > 10s);
  CHECK(desk.events[0].error->message == "too slow");
  CHECK(desk.events[0].request_done);
  CHECK(desk.router.counts().failed == 1);
}

TEST_CASE("attempts only count against a request until a token comes") {
  Desk desk;
  PreparedRequest patient = prompt_of(3, 100);
  patient.timeout = 1000s;
  desk.submit(patient);
  for (int i = 0; i < 60; ++i) {
    if (i % 10 == 9) desk.tokens(1, {8});
    desk.refuse(1, unavailable("no"));
    desk.wake(kRetryPauseMax);
  }
  for (const auto& event : desk.events) CHECK(!event.error);
  CHECK(desk.submits.size() == 61);
}

TEST_CASE("a replica that refuses is left alone as long as there is another") {
  Desk desk(3);
  desk.submit(prompt_of(3, 5));
  for (const std::uint32_t replica : {0u, 1u, 2u}) {
    CHECK(desk.submits.back().first == replica_address(replica));
    desk.refuse(1, unavailable("no"), replica);
  }
  CHECK(desk.submits.size() == 3);
  desk.wake(kRetryPauseMax);
  CHECK(desk.submits.size() == 4);
}

TEST_CASE("what no replica has room for fails when all have said so") {
  Desk desk(2);
  desk.submit(prompt_of(3, 5));
  desk.refuse(1, resource_exhausted("too long"), 0);
  CHECK(desk.events.empty());
  desk.refuse(1, resource_exhausted("too long"), 1);
  REQUIRE(desk.events.size() == 1);
  CHECK(desk.events[0].error->code == ErrorCode::kResourceExhausted);
}

TEST_CASE("sequences of a lost replica go on elsewhere, from their last token") {
  Desk desk(2);
  desk.submit(prompt_of(3, 5));
  desk.submit(prompt_of(3, 5));
  desk.tokens(1, {8}, FinishReason::kNone, 0);
  desk.tokens(2, {8, 9}, FinishReason::kNone, 1);
  desk.lose(1);
  REQUIRE(desk.submits.size() == 3);
  CHECK(desk.submits[2].first == replica_address(0));
  CHECK(desk.submits[2].second.sequence == SequenceId{2});
  CHECK(desk.submits[2].second.attempt == 1);
  CHECK(desk.submits[2].second.output == std::vector<TokenId>{8, 9});
  CHECK(desk.submits[2].second.sampling.seed == 777);
  CHECK(desk.cancels.empty());  // Nobody is there to hear it.
  CHECK(desk.router.counts().replayed == 1);
  desk.tokens(2, {1}, FinishReason::kStop, 0);
  CHECK(desk.events.back().request_done);
  CHECK(desk.router.counts().failed == 0);
}

TEST_CASE("without a replica, accepted requests wait; new ones too if that is worth while") {
  Desk desk(1);
  desk.submit(prompt_of(3, 5));
  desk.tokens(1, {8});
  desk.admit(false);
  desk.lose(0);
  CHECK(desk.events.size() == 1);
  CHECK(desk.submits.size() == 1);
  CHECK(desk.wake_at == desk.now + 10s);  // Nothing but its deadline.
  const auto refused = desk.ask(prompt_of(3, 5));
  REQUIRE(!refused.ok());
  CHECK(refused.error().code == ErrorCode::kUnavailable);
  CHECK(refused.error().message == "Two devices are missing.");
  desk.admit(true);
  desk.submit(prompt_of(3, 5));
  CHECK(desk.submits.size() == 1);
  desk.admit(false);
  CHECK(desk.events.size() == 1);
  desk.serve(3, 2);
  REQUIRE(desk.submits.size() == 3);
  CHECK(desk.submits[1].second.sequence == SequenceId{1});  // The oldest first.
  CHECK(desk.submits[1].second.output == std::vector<TokenId>{8});
  CHECK(desk.submits[2].second.sequence == SequenceId{2});
  desk.lose(2);
  desk.wake(10s);
  REQUIRE(desk.events.size() == 3);
  CHECK(desk.events[1].error->code == ErrorCode::kDeadlineExceeded);
  CHECK(desk.events[2].error->code == ErrorCode::kDeadlineExceeded);
}

TEST_CASE("a replica that is no longer listed gives its sequences to others") {
  Desk desk(2);
  desk.submit(prompt_of(3, 5));
  desk.submit(prompt_of(3, 5));
  desk.start(1, 0);
  desk.serve(3, 1);  // 1 goes on, 2 is new.
  REQUIRE(desk.submits.size() == 3);
  CHECK(desk.submits[2].first == replica_address(2));
  REQUIRE(desk.cancels.size() == 1);  // The old one may live on.
  CHECK(desk.cancels[0].first == replica_address(0));
  CHECK(desk.cancels[0].second.attempt == 0);
  desk.tokens(1, {8, 9, 10, 11, 1}, FinishReason::kStop, 2);
  desk.tokens(2, {1}, FinishReason::kStop, 1);
  CHECK(desk.router.counts().finished == 2);
}

TEST_CASE("a replica at a new address is not taken for the old one") {
  Desk desk;
  desk.submit(prompt_of(3, 5));
  Address reborn = replica_address(0);
  ++reborn.incarnation.value;
  desk.say(ReplicasChanged{PlacementVersion{2}, {{0, reborn}}});
  CHECK(desk.events.empty());
  REQUIRE(desk.submits.size() == 2);
  CHECK(desk.submits.back().first == reborn);
  desk.tokens(1, {8});  // Of the old life.
  CHECK(desk.events.empty());
  CHECK(all<Send>(desk.say(ReplicasChanged{PlacementVersion{1}, {}})).empty());
}

TEST_CASE("slow replicas get something only if there is no other") {
  Desk desk(0);
  desk.say(ReplicasChanged{PlacementVersion{2},
                           {{0, replica_address(0), true}, {1, replica_address(1), false}}});
  for (int i = 0; i < 4; ++i) desk.submit(prompt_of(3, 5));
  for (const auto& submit : desk.submits) CHECK(submit.first == replica_address(1));
  desk.lose(1);
  REQUIRE(desk.submits.size() == 8);
  CHECK(desk.submits.back().first == replica_address(0));
}

TEST_CASE("a submission that does not arrive goes elsewhere, or waits a moment") {
  const auto undeliverable = [](Desk& desk, std::uint32_t replica, std::size_t kind) {
    Undeliverable lost;
    lost.to = replica_address(replica);
    lost.kind = static_cast<std::uint32_t>(kind);
    lost.reference = 1;
    lost.error = unavailable("it cannot be reached");
    desk.say(Envelope{replica_address(replica), kRouterSelf, message_of(std::move(lost))});
  };
  Desk desk(2);
  desk.submit(prompt_of(3, 5));
  undeliverable(desk, 0, Message(Cancel{}).index());
  CHECK(desk.submits.size() == 1);
  undeliverable(desk, 0, Message(Submit{}).index());
  REQUIRE(desk.submits.size() == 2);
  CHECK(desk.submits[1].first == replica_address(1));
  CHECK(desk.submits[1].second.attempt == 1);
  for (std::uint32_t i = 0; i < 3 * kFailedAttemptsMax; ++i) {
    const std::size_t before = desk.submits.size();
    // Both refuse in turn: the second time there is nobody to try at once.
    const auto at = [&] { return desk.submits.back().first.actor.index; };
    undeliverable(desk, at(), Message(Submit{}).index());
    if (desk.submits.size() > before) undeliverable(desk, at(), Message(Submit{}).index());
    REQUIRE(desk.submits.size() <= before + 1);
    REQUIRE(desk.wake_at == desk.now + kRetryPauseMin);
    desk.wake(kRetryPauseMin);
    REQUIRE(desk.submits.size() <= before + 2);
  }
  CHECK(desk.events.empty());
  desk.start(1, desk.submits.back().first.actor.index);
  const std::size_t before = desk.submits.size();
  undeliverable(desk, desk.submits.back().first.actor.index, Message(Submit{}).index());
  CHECK(desk.submits.size() == before);  // An earlier one: this one arrived.
}

TEST_CASE("prompt log-probabilities and stop strings are exact across replays") {
  Desk desk(2, demo_tokenizer());
  PreparedRequest prepared = prompt_of(4, 50);
  prepared.prompt_logprobs = 1;
  prepared.stop = {"wörld"};
  desk.submit(prepared);
  SequenceEvent e;
  e.sequence = SequenceId{1};
  e.prompt_index = 1;
  e.prompt_logprobs = {{42, -1, {}}, {42, -2, {}}};
  desk.event(e, 0);
  desk.lose(0);
  CHECK(desk.submits.back().second.prompt_logprobs == 1);  // All of them again.
  e.attempt = 1;
  e.prompt_logprobs = {{42, -1, {}}, {42, -2, {}}, {42, -3, {}}};
  desk.event(e, 1);
  const auto ids = demo_tokenizer()->encode("héllo wo wörld and more", false).value();
  std::uint32_t at = 1;
  for (const TokenId id : ids) {
    if (!desk.router.journal().find(SequenceId{1})) break;
    desk.tokens(1, {id}, FinishReason::kNone, at);
    if (!desk.router.journal().find(SequenceId{1})) break;
    desk.serve(at + 2, at + 1);  // A move after every token.
    desk.lose(at);
    ++at;
    CHECK(desk.submits.back().second.prompt_logprobs == -1);
  }
  CHECK(at > 5);
  CHECK(desk.text() == "héllo wo ");
  REQUIRE(desk.events[0].prompt_logprobs.size() == 3);
  CHECK(desk.events[0].prompt_logprobs[2].logprob == -3);
  for (std::size_t i = 1; i < desk.events.size(); ++i)
    CHECK(desk.events[i].prompt_logprobs.empty());
  CHECK(desk.events.back().finish == FinishReason::kStop);
}

TEST_CASE("hidden states are whole across replays, and come with the request's end") {
  Desk desk(2);
  PreparedRequest prepared = prompt_of(3, 0);
  prepared.pooling = Pooling::kAll;
  prepared.hidden_width = 2;
  desk.submit(prepared);
  CHECK(desk.submits.back().second.pooling == Pooling::kAll);
  CHECK(desk.submits.back().second.hidden_width == 2);
  SequenceEvent e;
  e.sequence = SequenceId{1};
  e.hidden = {1, 2, 3, 4};
  desk.event(e, 0);
  desk.lose(0);
  e.attempt = 1;
  e.hidden = {1, 2};
  desk.event(e, 1);
  desk.event(e, 1);
  CHECK(desk.events.empty());
  // What comes behind a message that was lost does not count: all of them again.
  e.hidden_index = 4;
  e.finish = FinishReason::kLength;
  desk.event(e, 1);
  CHECK(desk.events.empty());
  CHECK(desk.submits.back().second.attempt == 2);
  desk.wake(1s);
  e = SequenceEvent{};
  e.sequence = SequenceId{1};
  e.attempt = desk.submits.back().second.attempt;
  e.hidden = {1, 2, 3, 4, 5, 6};
  e.finish = FinishReason::kLength;
  desk.event(e, 1);
  REQUIRE(desk.events.size() == 1);
  CHECK(desk.events[0].hidden == std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK(desk.events[0].request_done);
  CHECK_FALSE(desk.events[0].error);
}

TEST_CASE("a replica is handed no more than it can soon begin with; the rest waits") {
  Desk desk(1);
  for (int i = 0; i < 6; ++i) desk.submit(prompt_of(300'000, 5));
  CHECK(desk.submits.size() == 3);
  CHECK(desk.router.counts().waiting == 6);
  desk.start(1);
  CHECK(desk.submits.size() == 4);
  desk.start(1);  // Said twice, it counts once.
  CHECK(desk.submits.size() == 4);
  desk.say(CancelRequest{2});
  CHECK(desk.submits.size() == 5);
  CHECK(desk.submits.back().second.sequence == SequenceId{5});
  // After a loss, too; what is longer than the bound goes alone.
  desk.lose(0);
  desk.admit(true);
  desk.submit(prompt_of(2 * kUnstartedTokensMax, 5));
  desk.serve(2, 1);
  REQUIRE(desk.submits.size() == 8);
  CHECK(desk.submits[5].second.sequence == SequenceId{1});
  for (const std::uint64_t id : {1, 3, 4, 5, 6}) {
    desk.tokens(id, {1}, FinishReason::kStop, 1);
    CHECK(desk.router.journal().find(SequenceId{id}) == nullptr);
  }
  CHECK(desk.submits.back().second.sequence == SequenceId{7});
  desk.start(7, 1);
  desk.tokens(7, {1}, FinishReason::kStop, 1);
  CHECK(desk.router.counts().finished == 6);
}

TEST_CASE("what an answer's rules take on their way counts as if it were tokens") {
  Desk desk(1);
  const auto ruled = [] {
    PreparedRequest request = prompt_of(3, 5);
    request.n = 16;
    auto rules = std::make_shared<TokenRules>();
    rules->grammar.assign(kUnstartedTokensMax, 'x');  // a quarter, in tokens
    request.sampling.rules = std::move(rules);
    return request;
  };
  desk.submit(ruled());
  CHECK(desk.submits.size() == 3);
  desk.start(1);
  CHECK(desk.submits.size() == 4);
  desk.lose(0);
  desk.serve(2, 1);
  CHECK(desk.submits.size() == 7);
}

TEST_CASE("what was taken back from a replica runs nowhere") {
  Desk desk(1);
  for (int i = 0; i < 3; ++i) desk.submit(prompt_of(3, 5));
  desk.start(1);
  desk.start(2);
  CHECK(desk.router.counts().running == 2);
  CHECK(desk.router.counts().waiting == 1);
  desk.lose(0);
  CHECK(desk.router.counts().running == 0);
  CHECK(desk.router.counts().waiting == 3);
  desk.serve(2, 1);
  CHECK(desk.router.counts().running == 0);
  desk.start(1, 1);
  CHECK(desk.router.counts().running == 1);
}

TEST_CASE("after a loss streams go first, then the others by arrival") {
  Desk desk(1);
  for (int i = 0; i < 4; ++i) {
    PreparedRequest request = prompt_of(3, 50);
    request.streams = i >= 2;
    desk.submit(std::move(request));
  }
  desk.submits.clear();
  desk.lose(0);
  desk.admit(true);
  desk.submit(prompt_of(3, 50));  // Nobody reads of it yet.
  desk.serve(2, 1);
  std::vector<std::uint64_t> order;
  for (const auto& submit : desk.submits) order.push_back(submit.second.sequence.value);
  CHECK(order == std::vector<std::uint64_t>{3, 4, 1, 2, 5});
}
