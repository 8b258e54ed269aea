// Special tokens and what ends an answer, where requests want to see them.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/router/told_again.h"
#include "tests/actors/router/desk.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

/// The text that a reader hears while the tokens come one by one.
std::string heard(const PreparedRequest& prepared, const std::vector<TokenId>& ids) {
  Desk desk(1, demo_tokenizer());
  desk.submit(prepared);
  for (const TokenId id : ids) {
    if (!desk.router.journal().find(SequenceId{1})) break;  // It is over.
    desk.tokens(1, {id}, id == 1 ? FinishReason::kStop : FinishReason::kNone);
  }
  return desk.text();
}

/// What one hears who has `from` tokens, when all is over.
std::string told(const PreparedRequest& prepared, const std::vector<TokenId>& ids,
                 std::uint32_t from) {
  Journal journal;
  journal.append(
      JournalAccepted{1, SequenceId{1}, 0, std::make_shared<const PreparedRequest>(prepared)});
  JournalTokens tokens{SequenceId{1}, 0, {}};
  for (const TokenId id : ids) tokens.tokens.push_back({id, -0.5f, {}});
  journal.append(tokens);
  journal.append(JournalFinished{SequenceId{1}, FinishReason::kStop,
                                 static_cast<std::uint32_t>(ids.size())});
  ToldAgain told({from});
  std::string text;
  for (bool all = false; !all;) {  // in small pieces
    std::size_t tokens = 2;
    std::vector<GenerationEvent> events;
    all = told.tell(journal, 1, demo_tokenizer(), tokens, events);
    for (const GenerationEvent& event : events) text += event.text;
  }
  return text;
}

}  // namespace

TEST_CASE("special tokens and an answer's end are shown to all readers, or to none") {
  const auto tokenizer = demo_tokenizer();
  std::vector<TokenId> ids = tokenizer->encode("a river, of course", false).value();
  ids.insert(ids.begin() + 1, 0);
  ids.push_back(1);
  const std::string all = tokenizer->decode(ids, false);
  const std::string words = tokenizer->decode(ids, true);
  const std::string end(tokenizer->token_bytes(1));
  REQUIRE(all.ends_with("river, of course" + end));
  REQUIRE(words == "a river, of course");
  struct Case {
    bool skips, shows_end;
    const char* stop;
    std::string text;
  };
  const Case cases[] = {
      {true, false, "", words},
      {true, true, "", words},
      {false, false, "", all.substr(0, all.size() - end.size())},
      {false, true, "", all},
      {true, false, "river", "a "},
      {true, true, "river", "a river"},
      {false, true, "river", all.substr(0, all.find("river") + 5)},
  };
  for (const Case& c : cases) {
    CAPTURE(c.text);
    PreparedRequest prepared = prompt_of(3, 100);
    prepared.skip_special_tokens = c.skips;
    prepared.include_stop_str_in_output = c.shows_end;
    if (*c.stop != '\0') prepared.stop = {c.stop};
    CHECK(heard(prepared, ids) == c.text);
    CHECK(told(prepared, ids, 0) == c.text);
    CHECK(c.text.ends_with(told(prepared, ids, 1)));
    CHECK(told(prepared, ids, 1).size() < c.text.size());
  }
}
