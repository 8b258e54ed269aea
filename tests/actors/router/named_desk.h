#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/limits.h"
#include "tests/actors/router/desk.h"

namespace troupe::testing {

inline PreparedRequest named(std::string id, std::string key = "", std::uint32_t max_tokens = 4) {
  PreparedRequest prepared = prompt_of(3, max_tokens);
  RequestName name{.id = std::move(id), .owner = 5, .key = std::move(key), .body = {1, 2}};
  prepared.name = std::make_shared<const RequestName>(std::move(name));
  return prepared;
}

/// Who reads what.
struct Reading {
  std::vector<TokenId> tokens;
  std::string text;
  std::size_t prompts = 0;  ///< events that carried it
  std::optional<Error> error;
  FinishReason finish = FinishReason::kNone;
  bool done = false;
};

/// A Router that keeps its journal, the next life of one that left `journal` behind.
inline Router::Options keeping(std::uint64_t file, std::shared_ptr<Journal> journal = nullptr,
                        std::shared_ptr<const Tokenizer> tokenizer = nullptr) {
  Router::Options options;
  options.tokenizer = std::move(tokenizer);
  options.journal_file = file;
  options.journal = std::move(journal);
  return options;
}

struct NamedDesk : Desk {
  explicit NamedDesk(Router::Options options = {}) : Desk(1, std::move(options)) {}

  RequestAccepted ask(PreparedRequest prepared) {
    return answer(say(SubmitRequest{++ticket, std::move(prepared), 777}));
  }
  RequestAccepted attach(const std::string& id, std::vector<std::uint32_t> from = {},
                         bool follow = true, std::uint64_t owner = 5) {
    return answer(say(AttachReader{++ticket, {id, owner, 0, std::move(from), follow}}));
  }
  void wake(Duration later) {
    now += later;
    RouterEffects effects;
    troupe::wake(router, now, effects);
    take(effects);
    read(effects);
  }
  void leave(std::uint64_t request, std::uint64_t reader) { say(CancelRequest{request, reader}); }
  template <class M>
  RouterEffects say(M message) {
    RouterEffects effects = Desk::say(std::move(message));
    read(effects);
    return effects;
  }
  void give(std::uint64_t sequence, std::vector<TokenId> ids,
            FinishReason finish = FinishReason::kNone) {
    const Journal::Sequence& known = *router.journal().find(SequenceId{sequence});
    SequenceEvent e;
    e.sequence = SequenceId{sequence};
    e.attempt = known.attempt;
    e.index = static_cast<std::uint32_t>(known.output.size());
    for (const TokenId id : ids) e.tokens.push_back({id, -0.5f, {}});
    e.finish = finish;
    say(Envelope{replica_address(0), kRouterSelf, message_of(SequenceEvents{0, {e}})});
  }
  void read(const RouterEffects& effects) {
    for (const DeliverEvent& delivery : all<DeliverEvent>(effects))
      for (const std::uint64_t reader : delivery.readers) {
        Reading& r = readings[reader];
        CHECK(!r.done);
        for (const TokenOutput& t : delivery.event.tokens) r.tokens.push_back(t.token);
        r.text += delivery.event.text;
        r.prompts += delivery.event.prompt_tokens.empty() ? 0 : 1;
        if (delivery.event.finish != FinishReason::kNone) r.finish = delivery.event.finish;
        r.error = delivery.event.error;
        r.done = delivery.event.request_done;
      }
    for (const JournalNote& note : all<JournalNote>(effects)) notes.push_back(note.text);
  }
  static RequestAccepted answer(const RouterEffects& effects) {
    const auto answers = all<RequestAccepted>(effects);
    REQUIRE(answers.size() == 1);
    return answers[0];
  }
  /// What a storage has that was told all of this.
  Journal stored() const {
    Journal journal;
    for (const KeepRecords& keep : kept)
      for (const JournalRecord& record : keep.records)
        if (journal.fits(record)) journal.append(record);
    return journal;
  }

  std::map<std::uint64_t, Reading> readings;
  std::vector<std::string> notes;
};

}  // namespace troupe::testing
