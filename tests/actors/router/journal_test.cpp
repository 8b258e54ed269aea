#include "actors/router/journal.h"

#include <doctest/doctest.h>

#include <memory>

using namespace troupe;

namespace {

JournalAccepted accepted(std::uint64_t request, std::uint64_t first, PreparedRequest prepared) {
  return {request, SequenceId{first}, 1000,
          std::make_shared<const PreparedRequest>(std::move(prepared))};
}

PreparedRequest two_choices() {
  PreparedRequest prepared;
  prepared.prompt = {1, 2, 3};
  prepared.n = 2;
  prepared.max_tokens = 8;
  return prepared;
}

TokenOutput plain(TokenId id) { return {id, 0, {}}; }

}  // namespace

TEST_CASE("a journal is the sum of its records") {
  Journal journal;
  journal.append(accepted(9, 5, two_choices()));
  CHECK(journal.sequences() == 2);
  CHECK(journal.words() == 3);
  journal.append(JournalTokens{SequenceId{6}, 0, {plain(7), plain(8)}});
  journal.append(JournalSubmitted{SequenceId{6}, 1});
  journal.append(JournalTokens{SequenceId{6}, 2, {plain(9)}});
  CHECK(journal.words() == 6);
  CHECK(journal.words_of(9) == 6);
  REQUIRE(journal.find(SequenceId{6}));
  CHECK(journal.find(SequenceId{6})->output == std::vector<TokenId>{7, 8, 9});
  CHECK(journal.find(SequenceId{6})->attempt == 1);
  CHECK(journal.find(SequenceId{6})->choice == 1);
  CHECK(journal.find(SequenceId{5})->output.empty());
  journal.append(JournalFinished{SequenceId{6}, FinishReason::kLength, 3});
  CHECK(!journal.fits(JournalEnded{9, 2000, std::nullopt}));  // the other one goes on
  journal.append(JournalFinished{SequenceId{5}, FinishReason::kStop, 0});
  journal.append(JournalEnded{9, 2000, std::nullopt});
  CHECK(journal.request(9)->ended);
  CHECK(journal.find(SequenceId{6})->finish == FinishReason::kLength);
  journal.append(JournalForgotten{9});
  CHECK(!journal.find(SequenceId{5}));
  CHECK(journal.sequences() == 0);
  CHECK(journal.requests() == 0);
  CHECK(journal.words() == 0);
}

TEST_CASE("what a storage gives is used only where it fits") {
  Journal journal;
  const auto fits = [&](const JournalRecord& record) { return journal.fits(record); };
  CHECK(!fits(JournalTokens{SequenceId{6}, 0, {plain(7)}}));
  CHECK(!fits(JournalEnded{9, 0, {}}));
  CHECK(!fits(JournalForgotten{9}));
  CHECK(!fits(JournalAccepted{9, SequenceId{5}, 0, nullptr}));
  journal.append(accepted(9, 5, two_choices()));
  CHECK(!fits(JournalTokens{SequenceId{6}, 1, {plain(7)}}));  // a gap
  CHECK(!fits(JournalTokens{SequenceId{6}, 0, std::vector<TokenOutput>(9, plain(7))}));
  CHECK(!fits(JournalPrompt{9, 0, {plain(7)}}));  // not asked for
  journal.append(JournalTokens{SequenceId{6}, 0, {plain(7)}});
  // Tokens that came before may come again, with others behind them.
  REQUIRE(fits(JournalTokens{SequenceId{6}, 0, {plain(7), plain(8)}}));
  journal.append(JournalTokens{SequenceId{6}, 0, {plain(7), plain(8)}});
  CHECK(journal.find(SequenceId{6})->output == std::vector<TokenId>{7, 8});
  CHECK(journal.words() == 5);
  // An end counts only where all is there that came before it.
  CHECK(!fits(JournalFinished{SequenceId{6}, FinishReason::kStop, 3}));
  CHECK(!fits(JournalFinished{SequenceId{6}, FinishReason::kNone, 2}));
  CHECK(!fits(JournalEnded{9, 0, {}}));
  CHECK(fits(JournalEnded{9, 0, unavailable("No.")}));
  journal.append(JournalFinished{SequenceId{6}, FinishReason::kStop, 2});
  CHECK(!fits(JournalTokens{SequenceId{6}, 2, {plain(7)}}));  // it is over
}

TEST_CASE("crashes of heads count until a new token comes, however often they are told") {
  PreparedRequest prepared = two_choices();
  prepared.name = std::make_shared<const RequestName>(RequestName{.id = "id"});
  Journal journal;
  CHECK(!journal.fits(JournalCrashes{9, 1, 5}));
  journal.append(accepted(9, 5, prepared));
  journal.append(JournalTokens{SequenceId{6}, 0, {plain(7)}});
  journal.append(JournalCrashes{9, 1, 5});
  journal.append(JournalCrashes{9, 2, 6});
  journal.append(JournalCrashes{9, 9, 6});
  CHECK(journal.request(9)->crashes == 2);
  journal.append(JournalTokens{SequenceId{6}, 0, {plain(7)}});  // told again: no new one
  CHECK(journal.request(9)->crashes == 2);
  journal.begin_again(9);
  CHECK(journal.request(9)->crashes == 2);
  journal.append(JournalTokens{SequenceId{5}, 0, {plain(7)}});
  CHECK(journal.request(9)->crashes == 0);
  journal.append(JournalCrashes{9, 2, 6});  // of before
  CHECK(journal.request(9)->crashes == 0);
  journal.append(JournalCrashes{9, 1, 8});
  Journal::Place place;
  std::vector<JournalRecord> told;
  CHECK(journal.tell(place, ~0ull, ~std::size_t{0}, told));
  Journal other;
  for (int i = 0; i < 2; ++i)
    for (const JournalRecord& record : told)
      if (other.fits(record)) other.append(record);
  CHECK(other.request(9)->crashes == 1);
  CHECK(other.request(9)->crash_term == 8);
}

TEST_CASE("hidden states are told again whole, and a request has no end without them") {
  PreparedRequest prepared = two_choices();
  prepared.n = 1;
  prepared.pooling = Pooling::kAll;
  prepared.hidden_width = 50'000;  // Several records.
  prepared.name = std::make_shared<const RequestName>(RequestName{.id = "id"});
  std::vector<float> hidden(prepared.hidden_values());
  for (std::size_t i = 0; i < hidden.size(); ++i) hidden[i] = static_cast<float>(i);
  Journal journal;
  journal.append(accepted(9, 5, prepared));
  CHECK(journal.words() >= hidden.size());
  CHECK(!journal.fits(JournalFinished{SequenceId{5}, FinishReason::kLength, 0}));
  CHECK(!journal.fits(JournalHidden{9, 1, {1}}));  // a gap
  CHECK(!journal.fits(JournalHidden{9, 0, std::vector<float>(hidden.size() + 1)}));
  CHECK(!journal.fits(JournalHidden{8, 0, {1}}));
  for (const JournalRecord& record : hidden_records(9, 0, hidden)) journal.append(record);
  journal.append(JournalFinished{SequenceId{5}, FinishReason::kLength, 0});
  journal.append(JournalEnded{9, 2000, {}});

  Journal other;
  std::vector<JournalRecord> told;
  Journal::Place place;
  while (!journal.tell(place, 9, 1, told)) {
  }
  for (const JournalRecord& record : told) {
    REQUIRE(other.fits(record));
    other.append(record);
  }
  CHECK(other.request(9)->hidden == hidden);
  CHECK(other.request(9)->ended);
}

TEST_CASE("a request told again is the same request, and another that had its number is void") {
  PreparedRequest prepared = two_choices();
  prepared.sampling.top_logprobs = 1;
  prepared.prompt_logprobs = 0;
  prepared.name = std::make_shared<const RequestName>(RequestName{.id = "id"});
  Journal journal;
  journal.append(accepted(9, 5, prepared));
  journal.append(JournalPrompt{9, 0, {{2, -0.5f, {}}, {3, -0.25f, {}}}});
  const TokenOutput one{7, -1.0f, {{7, -1.0f}}}, two{8, -2.0f, {{9, -0.1f}}};
  journal.append(JournalTokens{SequenceId{5}, 0, {one, two}});
  journal.append(JournalSubmitted{SequenceId{5}, 3});
  journal.append(JournalFinished{SequenceId{5}, FinishReason::kStop, 2});
  journal.append(JournalEnded{9, 2000, unavailable("No.")});
  CHECK(journal.words() >= 3 * 3 + 2 * 5);

  Journal other;
  other.append(accepted(9, 5, two_choices()));
  other.append(JournalTokens{SequenceId{5}, 0, {plain(1)}});
  std::vector<JournalRecord> told;
  Journal::Place place;
  while (!journal.tell(place, 9, 1, told)) {
  }
  for (const JournalRecord& record : told) {
    REQUIRE(other.fits(record));
    other.append(record);
  }
  CHECK(other.words() == journal.words());
  const Journal::Sequence& sequence = *other.find(SequenceId{5});
  CHECK(sequence.output == std::vector<TokenId>{7, 8});
  CHECK(sequence.logprobs->at(1) == TokenOutput{8, -2.0f, {{9, -0.1f}}});
  CHECK(sequence.attempt == 3);
  CHECK(sequence.finish == FinishReason::kStop);
  CHECK(other.request(9)->prompt_logprobs->at(0) == TokenOutput{2, -0.5f, {}});
  CHECK(other.request(9)->error->message == "No.");

  // Cut off anywhere within what is told, nothing that was known is lost.
  const std::size_t words = other.words();
  for (const JournalRecord& record : told) {
    REQUIRE(other.fits(record));
    other.append(record);
    CHECK(other.request(9)->error);
    CHECK(other.find(SequenceId{5})->finish == FinishReason::kStop);
    CHECK(other.words() == words);
    CHECK(other.request(9)->prompt_logprobs->size() == 2);
    if (std::holds_alternative<JournalPrompt>(record)) break;  // it gets no token when it is over
  }
  other.begin_again(9);
  CHECK(!other.request(9)->error);
  CHECK(other.find(SequenceId{5})->output.empty());

  journal.append(accepted(10, 7, two_choices()));
  journal.append(JournalTokens{SequenceId{7}, 0, {plain(1), plain(2)}});
  journal.take_back(SequenceId{7});
  CHECK(journal.find(SequenceId{7})->output == std::vector<TokenId>{1});
  CHECK(journal.words_of(10) == 4);
}
