#include "actors/router/router.h"

#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <vector>

#include "runtime/limits.h"

using namespace troupe;
using namespace std::chrono_literals;

namespace {

Address replica_address(std::uint32_t id) {
  return {NodeId{id + 1}, Incarnation{id + 10}, {ActorKind::kReplica, id}};
}
const Address kSelf{kHeadNode, Incarnation{1}, {ActorKind::kRouter, 0}};

std::shared_ptr<const Tokenizer> demo_tokenizer() {
  static const auto tokenizer =
      Tokenizer::load(TROUPE_SOURCE_DIR "/tools/demo/pocket-dictionary").value();
  return tokenizer;
}

PreparedRequest prompt_of(std::size_t length, std::uint32_t max_tokens) {
  PreparedRequest prepared;
  prepared.prompt.assign(length, 42);
  prepared.max_tokens = max_tokens;
  prepared.stop_tokens = {1};
  prepared.timeout = 10s;
  return prepared;
}

/// A Router whose replicas are played by the test.
struct Desk {
  explicit Desk(std::uint32_t replicas = 1, std::shared_ptr<const Tokenizer> tokenizer = nullptr)
      : router({std::move(tokenizer)}) {
    std::vector<ReplicaEndpoint> endpoints;
    for (std::uint32_t id = 0; id < replicas; ++id) endpoints.push_back({id, replica_address(id)});
    RouterActions actions;
    router.on_replicas(PlacementVersion{1}, endpoints, now, actions);
    take(actions);
  }
  std::uint64_t submit(PreparedRequest prepared) {
    RouterActions actions;
    const auto id = router.submit(std::move(prepared), 777, now, actions);
    take(actions);
    return id.value();
  }
  void event(const SequenceEvent& event, std::uint32_t replica = 0) {
    RouterActions actions;
    router.on({replica_address(replica), kSelf, message_of(SequenceEvents{replica, {event}})}, now,
              actions);
    take(actions);
  }
  /// Tokens that follow what has been said of that sequence.
  void tokens(std::uint64_t sequence, std::vector<TokenId> ids,
              FinishReason finish = FinishReason::kNone) {
    const Journal::Sequence* known = router.journal().find(SequenceId{sequence});
    REQUIRE(known);
    SequenceEvent e;
    e.sequence = SequenceId{sequence};
    e.attempt = known->attempt;
    e.index = static_cast<std::uint32_t>(known->output.size());
    for (const TokenId id : ids) e.tokens.push_back({id, 0, {}});
    e.finish = finish;
    event(e);
  }
  void wake(Duration later) {
    now += later;
    RouterActions actions;
    router.on_wake(now, actions);
    take(actions);
  }
  void take(const RouterActions& actions) {
    wake_at = actions.wake;
    for (const auto& send : actions.sends) {
      if (const auto* s = std::get_if<Submit>(send.message.get())) submits.push_back({send.to, *s});
      if (const auto* c = std::get_if<Cancel>(send.message.get())) cancels.push_back({send.to, *c});
    }
    for (const auto& delivery : actions.deliveries) events.push_back(delivery.event);
    observed.insert(observed.end(), actions.observations.begin(), actions.observations.end());
  }
  std::string text(std::uint32_t choice = 0) const {
    std::string all;
    for (const auto& e : events)
      if (e.choice == choice) all += e.text;
    return all;
  }

  Router router;
  TimePoint now{};
  std::vector<std::pair<Address, Submit>> submits;
  std::vector<std::pair<Address, Cancel>> cancels;
  std::vector<GenerationEvent> events;
  std::vector<RequestObservation> observed;
  std::optional<TimePoint> wake_at;
};

}  // namespace

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
      {Kind::kPromptTokens, 3},  {Kind::kQueueTime, 0.02},     {Kind::kGenerationTokens, 1},
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
  REQUIRE(desk.submits.size() == 3);
  CHECK(desk.router.counts().replayed == 2);
  CHECK(desk.events.size() == 1);
  desk.tokens(1, {10, 11, 12}, FinishReason::kLength);
  CHECK(desk.events.back().request_done);
}

TEST_CASE("refusals without end fail the request") {
  Desk desk;
  desk.submit(prompt_of(3, 5));
  SequenceEvent refusal;
  refusal.sequence = SequenceId{1};
  refusal.error = unavailable("not started");
  for (; desk.events.empty(); ++refusal.attempt) {
    REQUIRE(refusal.attempt <= limits::kReplaysMax);
    desk.event(refusal);
  }
  CHECK(desk.events[0].error->message == "not started");
  CHECK(desk.events[0].request_done);
  CHECK(desk.router.counts().failed == 1);
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
  RouterActions actions;
  desk.router.cancel(second, desk.now, actions);
  desk.router.cancel(second, desk.now, actions);
  desk.take(actions);
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

TEST_CASE("a lost replica's requests end at once and say which node was lost") {
  Desk desk(2);
  desk.submit(prompt_of(3, 5));
  desk.submit(prompt_of(3, 5));
  RouterActions actions;
  desk.router.on_replicas_lost({1}, "node-2 was lost; send the request again.", desk.now, actions);
  desk.take(actions);
  REQUIRE(desk.events.size() == 1);
  CHECK(desk.events[0].error->code == ErrorCode::kUnavailable);
  CHECK(desk.events[0].error->message == "node-2 was lost; send the request again.");
  CHECK(desk.cancels.empty());

  RouterActions none;
  desk.router.set_admission(false, "Two devices are missing.", desk.now, none);
  desk.router.on_replicas(PlacementVersion{2}, {}, desk.now, none);
  desk.take(none);
  CHECK(desk.events.size() == 2);
  const auto refused = desk.router.submit(prompt_of(3, 5), 1, desk.now, none);
  REQUIRE(!refused.ok());
  CHECK(refused.error().code == ErrorCode::kUnavailable);
  CHECK(refused.error().message == "Two devices are missing.");
}

TEST_CASE("a replica at a new address is not taken for the old one") {
  Desk desk;
  desk.submit(prompt_of(3, 5));
  RouterActions actions;
  Address reborn = replica_address(0);
  ++reborn.incarnation.value;
  desk.router.on_replicas(PlacementVersion{2}, {{0, reborn}}, desk.now, actions);
  desk.take(actions);
  REQUIRE(desk.events.size() == 1);
  CHECK(desk.events[0].error->code == ErrorCode::kUnavailable);
  desk.submit(prompt_of(3, 5));
  CHECK(desk.submits.back().first == reborn);
  RouterActions stale;
  desk.router.on_replicas(PlacementVersion{1}, {}, desk.now, stale);
  CHECK(stale.deliveries.empty());
}

TEST_CASE("a submission that does not arrive ends the request; a lost cancellation does nothing") {
  Desk desk;
  desk.submit(prompt_of(3, 5));
  Undeliverable lost;
  lost.to = replica_address(0);
  lost.kind = static_cast<std::uint32_t>(Message(Cancel{}).index());
  lost.reference = 1;
  lost.error = unavailable("node-1 cannot be reached");
  RouterActions actions;
  desk.router.on({replica_address(0), kSelf, message_of(Undeliverable(lost))}, desk.now, actions);
  CHECK(actions.deliveries.empty());
  lost.kind = static_cast<std::uint32_t>(Message(Submit{}).index());
  desk.router.on({replica_address(0), kSelf, message_of(Undeliverable(lost))}, desk.now, actions);
  REQUIRE(actions.deliveries.size() == 1);
  CHECK(actions.deliveries[0].event.error->message == "node-1 cannot be reached");
}

TEST_CASE("the Router accepts as many requests as it may") {
  Desk desk;
  RouterActions actions;
  for (std::size_t i = 0; i < limits::kRequestsMax; ++i)
    REQUIRE(desk.router.submit(prompt_of(1, 1), 1, desk.now, actions).ok());
  const auto refused = desk.router.submit(prompt_of(1, 1), 1, desk.now, actions);
  REQUIRE(!refused.ok());
  CHECK(refused.error().code == ErrorCode::kResourceExhausted);
}

TEST_CASE("one request cannot fill the control lane with copies of its prompt") {
  Desk desk;
  PreparedRequest request = prompt_of(163'840, 1);
  request.n = 128;
  RouterActions actions;
  const auto refused = desk.router.submit(std::move(request), 1, desk.now, actions);
  REQUIRE(!refused.ok());
  CHECK(refused.error().code == ErrorCode::kInvalidArgument);
  CHECK(refused.error().message.rfind("n: ", 0) == 0);
  CHECK(actions.sends.empty());
}
