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
      : Desk(replicas, Router::Options{std::move(tokenizer)}) {}
  Desk(std::uint32_t replicas, Router::Options options) : router(std::move(options)) {
    serve(replicas);
  }
  /// Replicas `first` to `end - 1` serve.
  void serve(std::uint32_t end, std::uint32_t first = 0) {
    std::vector<ReplicaEndpoint> endpoints;
    for (std::uint32_t id = first; id < end; ++id) endpoints.push_back({id, replica_address(id)});
    RouterActions actions;
    router.on_replicas(PlacementVersion{++version}, endpoints, now, actions);
    take(actions);
  }
  void lose(std::uint32_t replica) {
    RouterActions actions;
    router.on_replicas_lost({replica}, "node-" + std::to_string(replica + 1) + " was lost.", now,
                            actions);
    take(actions);
  }
  void admit(bool waits) {
    RouterActions actions;
    router.set_admission(waits, "Two devices are missing.", now, actions);
    take(actions);
  }
  /// The newest attempt of a sequence has begun.
  void start(std::uint64_t sequence, std::uint32_t replica = 0) {
    SequenceEvent e;
    e.sequence = SequenceId{sequence};
    e.attempt = router.journal().find(e.sequence)->attempt;
    e.index = static_cast<std::uint32_t>(router.journal().find(e.sequence)->output.size());
    e.started = true;
    event(e, replica);
  }
  /// The newest attempt of a sequence ends with an error.
  void refuse(std::uint64_t sequence, Error error, std::uint32_t replica = 0) {
    SequenceEvent e;
    e.sequence = SequenceId{sequence};
    e.attempt = router.journal().find(e.sequence)->attempt;
    e.error = std::move(error);
    event(e, replica);
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
              FinishReason finish = FinishReason::kNone, std::uint32_t replica = 0) {
    const Journal::Sequence* known = router.journal().find(SequenceId{sequence});
    REQUIRE(known);
    SequenceEvent e;
    e.sequence = SequenceId{sequence};
    e.attempt = known->attempt;
    e.index = static_cast<std::uint32_t>(known->output.size());
    for (const TokenId id : ids) e.tokens.push_back({id, 0, {}});
    e.finish = finish;
    event(e, replica);
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
  std::uint64_t version = 0;
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
    REQUIRE(attempt <= kAttemptsInVainMax);
    desk.refuse(1, deadline_exceeded("too slow"));
    if (!desk.events.empty()) break;
    REQUIRE(desk.wake_at);
    CHECK(*desk.wake_at - desk.now <= kRetryPauseMax);
    desk.wake(*desk.wake_at - desk.now);
  }
  CHECK(desk.submits.size() == kAttemptsInVainMax);
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
  RouterActions actions;
  const auto refused = desk.router.submit(prompt_of(3, 5), 1, desk.now, actions);
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

TEST_CASE("a cluster that was never ready says so") {
  Router router{Router::Options{}};
  RouterActions actions;
  const auto refused = router.submit(prompt_of(3, 5), 1, TimePoint{}, actions);
  REQUIRE(!refused.ok());
  CHECK(refused.error().code == ErrorCode::kUnavailable);
  CHECK(refused.error().message.find("not ready yet") != std::string::npos);
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
  RouterActions actions;
  Address reborn = replica_address(0);
  ++reborn.incarnation.value;
  desk.router.on_replicas(PlacementVersion{2}, {{0, reborn}}, desk.now, actions);
  desk.take(actions);
  CHECK(desk.events.empty());
  REQUIRE(desk.submits.size() == 2);
  CHECK(desk.submits.back().first == reborn);
  desk.tokens(1, {8});  // Of the old life.
  CHECK(desk.events.empty());
  RouterActions stale;
  desk.router.on_replicas(PlacementVersion{1}, {}, desk.now, stale);
  CHECK(stale.sends.empty());
}

TEST_CASE("slow replicas get something only if there is no other") {
  Desk desk(0);
  RouterActions actions;
  desk.router.on_replicas(PlacementVersion{2},
                          {{0, replica_address(0), true}, {1, replica_address(1), false}}, desk.now,
                          actions);
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
    RouterActions actions;
    desk.router.on({replica_address(replica), kSelf, message_of(std::move(lost))}, desk.now,
                   actions);
    desk.take(actions);
  };
  Desk desk(2);
  desk.submit(prompt_of(3, 5));
  undeliverable(desk, 0, Message(Cancel{}).index());
  CHECK(desk.submits.size() == 1);
  undeliverable(desk, 0, Message(Submit{}).index());
  REQUIRE(desk.submits.size() == 2);
  CHECK(desk.submits[1].first == replica_address(1));
  CHECK(desk.submits[1].second.attempt == 1);
  for (std::uint32_t i = 0; i < 3 * kAttemptsInVainMax; ++i) {
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

TEST_CASE("what is alone when its worker dies twice without a new token is given up") {
  for (const bool token : {false, true}) {
    Desk desk(3);
    desk.submit(prompt_of(3, 50));
    desk.start(1, 0);
    desk.lose(0);
    CHECK(desk.events.empty());
    desk.start(1, 1);
    if (token) desk.tokens(1, {8}, FinishReason::kNone, 1);
    desk.lose(1);
    if (token) {
      // The strike was cleared, and there is no new one.
      CHECK(desk.submits.size() == 3);
      desk.start(1, 2);
      desk.lose(2);
      CHECK(desk.router.counts().failed == 0);
      continue;
    }
    REQUIRE(desk.events.size() == 1);
    CHECK(desk.events[0].error->message.find("running alone each time a worker died, 2 times") !=
          std::string::npos);
    CHECK(desk.events[0].error->message.find("node-2 was lost") != std::string::npos);
    CHECK(desk.events[0].request_done);
    CHECK(desk.submits.size() == 2);
  }
}

TEST_CASE("waiting in a replica's queue, or a planned move, is no reason for suspicion") {
  Desk desk(4);
  desk.submit(prompt_of(3, 50));
  for (std::uint32_t replica = 0; replica < 3; ++replica) desk.lose(replica);  // Never begun.
  desk.start(1, 3);
  desk.serve(5, 4);
  desk.start(1, 4);
  desk.serve(6, 5);
  desk.start(1, 5);
  desk.lose(5);
  CHECK(desk.events.empty());
  CHECK(desk.router.counts().failed == 0);
}

TEST_CASE("several suspects are tried one at a time, and only they wait") {
  Desk desk(1);
  for (int i = 0; i < 3; ++i) desk.submit(prompt_of(3, 50));
  for (std::uint32_t replica = 0; replica < 2; ++replica) {
    for (std::uint64_t id = 1; id <= 3; ++id) desk.start(id, replica);
    desk.lose(replica);
    CHECK(desk.events.empty());
    desk.serve(replica + 2, replica + 1);
  }
  // All three have two strikes: one runs, the others wait; a newcomer does not.
  REQUIRE(desk.submits.size() == 7);
  CHECK(desk.submits.back().second.sequence == SequenceId{1});
  desk.submit(prompt_of(3, 50));
  REQUIRE(desk.submits.size() == 8);
  desk.tokens(4, {8}, FinishReason::kStop, 2);
  // A token clears the first: the next one is tried.
  desk.start(1, 2);
  CHECK(desk.submits.size() == 8);
  desk.tokens(1, {8}, FinishReason::kNone, 2);
  REQUIRE(desk.submits.size() == 9);
  CHECK(desk.submits.back().second.sequence == SequenceId{2});
  // It kills its worker in company: one more strike, no proof.
  desk.start(2, 2);
  desk.lose(2);
  CHECK(desk.router.counts().failed == 0);
  desk.serve(4, 3);
  // The first goes on elsewhere, the second is tried again, alone after the first has ended.
  desk.tokens(1, {1}, FinishReason::kStop, 3);
  desk.start(2, 3);
  desk.lose(3);
  CHECK(desk.router.counts().failed == 1);
  CHECK(desk.events.back().error->message.find("3 times") == std::string::npos);
  CHECK(desk.events.back().error->message.find("4 times in a row") != std::string::npos);
  desk.serve(5, 4);
  CHECK(desk.submits.back().second.sequence == SequenceId{3});
  desk.tokens(3, {1}, FinishReason::kStop, 4);
  CHECK(desk.router.counts().finished == 3);
}

TEST_CASE("newcomers keep away from a suspect as long as there is another replica") {
  Desk desk(1);
  desk.submit(prompt_of(3, 50));
  desk.submit(prompt_of(3, 50));
  for (std::uint32_t replica = 0; replica < 2; ++replica) {
    desk.start(1, replica);
    desk.tokens(2, {8}, FinishReason::kNone, replica);
    desk.lose(replica);
    if (replica == 0) desk.serve(2, 1);
  }
  desk.serve(4, 2);
  REQUIRE(desk.submits.size() == 6);
  CHECK(desk.submits[4].second.sequence == SequenceId{1});
  const std::uint32_t trial = desk.submits[4].first.actor.index;
  CHECK(desk.submits[5].first != replica_address(trial));
  for (int i = 0; i < 3; ++i) {
    desk.submit(prompt_of(3, 50));
    CHECK(desk.submits.back().first != replica_address(trial));
  }
  desk.tokens(1, {8}, FinishReason::kNone, trial);
  desk.submit(prompt_of(3, 50));
  CHECK(desk.submits.back().first == replica_address(trial));
}

TEST_CASE("under steady traffic a suspect is convicted in company in the end") {
  Desk desk(1);
  desk.submit(prompt_of(3, 50));  // Kills every worker.
  for (std::uint32_t replica = 0; replica < kStrikesInCompanyMax; ++replica) {
    CHECK(desk.router.counts().failed == 0);
    desk.submit(prompt_of(3, 50));
    const std::uint64_t company = replica + 2;
    desk.start(1, replica);
    desk.tokens(company, {8}, FinishReason::kNone, replica);
    desk.lose(replica);
    desk.serve(replica + 2, replica + 1);
  }
  CHECK(desk.router.counts().failed == 1);
  REQUIRE(desk.events.back().error);
  CHECK(desk.events.back().error->message.find("4 times in a row") != std::string::npos);
  CHECK(desk.router.list(99).size() == kStrikesInCompanyMax);
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

TEST_CASE("when the journal is full those who wait longest are refused, never who runs") {
  Desk desk(1, Router::Options{nullptr, 30});
  desk.submit(prompt_of(10, 9));
  desk.start(1);
  desk.submit(prompt_of(10, 9));
  desk.submit(prompt_of(10, 9));
  CHECK(desk.events.empty());
  desk.submit(prompt_of(10, 9));  // In the place of the second.
  REQUIRE(desk.events.size() == 1);
  CHECK(desk.events[0].error->code == ErrorCode::kResourceExhausted);
  CHECK(!desk.router.journal().find(SequenceId{2}));
  REQUIRE(desk.cancels.size() == 1);
  CHECK(desk.cancels[0].second.sequence == SequenceId{2});
  desk.tokens(1, {8, 9});  // Growth, too: the third goes.
  REQUIRE(desk.events.size() == 3);
  CHECK(!desk.router.journal().find(SequenceId{3}));
  desk.start(4);
  desk.tokens(4, {8, 9, 10, 11, 12, 13, 14, 15});
  desk.tokens(1, {8, 9});  // Only running ones are left: they grow on.
  CHECK(desk.router.journal().tokens() == 32);
  CHECK(desk.router.counts().failed == 2);
  RouterActions actions;
  const auto refused = desk.router.submit(prompt_of(1, 1), 1, desk.now, actions);
  REQUIRE(!refused.ok());
  CHECK(refused.error().code == ErrorCode::kResourceExhausted);
  CHECK(desk.router.counts().failed == 2);
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
