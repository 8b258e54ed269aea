#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/router/router.h"
#include "tests/actors/effects.h"
#include "tests/source_path.h"

namespace troupe::testing {

inline Address replica_address(std::uint32_t id) {
  return {NodeId{id + 1}, Incarnation{id + 10}, {ActorKind::kReplica, id}};
}
inline const Address kRouterSelf{kHeadNode, Incarnation{1}, {ActorKind::kRouter, 0}};

inline std::shared_ptr<const Tokenizer> demo_tokenizer() {
  static const auto tokenizer =
      Tokenizer::load(source_path("tools/demo/pocket-dictionary")).value();
  return tokenizer;
}

inline PreparedRequest prompt_of(std::size_t length, std::uint32_t max_tokens) {
  PreparedRequest prepared;
  prepared.prompt.assign(length, 42);
  prepared.max_tokens = max_tokens;
  prepared.stop_tokens = {1};
  prepared.timeout = std::chrono::seconds(10);
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
    say(ReplicasChanged{PlacementVersion{++version}, std::move(endpoints)});
  }
  /// Its node was killed, hangs or is cut off.
  void lose(std::uint32_t replica) {
    say(LifeLost{replica_address(replica).incarnation, {replica}});
    say(ReplicasLost{{replica}, "node-" + std::to_string(replica + 1) + " was lost."});
  }
  /// Word comes that a node which was lost had crashed.
  void tell_crash(std::uint32_t replica) {
    say(LifeCrashed{replica_address(replica).incarnation,
                    "node-" + std::to_string(replica + 1) + " crashed."});
  }
  void crash(std::uint32_t replica) {
    lose(replica);
    tell_crash(replica);
  }
  void admit(bool waits) {
    say(AdmissionChanged{waits, "Two devices are missing."});
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
  std::uint64_t submit(PreparedRequest prepared) { return ask(std::move(prepared)).value(); }
  /// What the Router answers to a request, which it may refuse.
  Result<std::uint64_t> ask(PreparedRequest prepared) {
    const RouterEffects effects = say(SubmitRequest{++ticket, std::move(prepared), 777});
    const auto answers = all<RequestAccepted>(effects);
    REQUIRE(answers.size() == 1);
    CHECK(answers[0].ticket == ticket);
    return answers[0].request;
  }
  void event(const SequenceEvent& event, std::uint32_t replica = 0) {
    say(Envelope{replica_address(replica), kRouterSelf,
                 message_of(SequenceEvents{replica, {event}})});
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
    RouterEffects effects;
    troupe::wake(router, now, effects);
    take(effects);
  }
  /// One turn of the Router: a local message, or an envelope.
  template <class M>
  RouterEffects say(M message) {
    RouterEffects effects;
    turn(router, std::move(message), now, effects);
    take(effects);
    return effects;
  }
  void take(const RouterEffects& effects) {
    CHECK(router.violation() == "");
    wake_at = effects.wake();
    for (const auto& send : all<Send>(effects)) {
      if (const auto* s = std::get_if<Submit>(send.message.get())) submits.push_back({send.to, *s});
      if (const auto* c = std::get_if<Cancel>(send.message.get())) cancels.push_back({send.to, *c});
    }
    for (const auto& delivery : all<DeliverEvent>(effects)) events.push_back(delivery.event);
    for (const auto& seen : all<RequestObservation>(effects)) observed.push_back(seen);
    for (const auto& keep : all<KeepRecords>(effects)) kept.push_back(keep);
  }
  std::string text(std::uint32_t choice = 0) const {
    std::string all;
    for (const auto& e : events)
      if (e.choice == choice) all += e.text;
    return all;
  }

  Router router;
  TimePoint now{};
  std::uint64_t version = 0, ticket = 0;
  std::vector<std::pair<Address, Submit>> submits;
  std::vector<std::pair<Address, Cancel>> cancels;
  std::vector<GenerationEvent> events;
  std::vector<RequestObservation> observed;
  std::vector<KeepRecords> kept;
  std::optional<TimePoint> wake_at;
};

}  // namespace troupe::testing
