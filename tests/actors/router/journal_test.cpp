#include "actors/router/journal.h"

#include <doctest/doctest.h>

#include <memory>

using namespace troupe;

TEST_CASE("a journal is the sum of its records") {
  PreparedRequest prepared;
  prepared.prompt = {1, 2, 3};
  prepared.n = 2;
  Journal journal;
  journal.append(JournalAccepted{9, SequenceId{5}, std::make_shared<PreparedRequest>(prepared)});
  CHECK(journal.sequences() == 2);
  CHECK(journal.tokens() == 3);
  journal.append(JournalTokens{SequenceId{6}, 0, {7, 8}});
  journal.append(JournalSubmitted{SequenceId{6}, 1});
  journal.append(JournalTokens{SequenceId{6}, 2, {9}});
  CHECK(journal.tokens() == 6);
  REQUIRE(journal.find(SequenceId{6}));
  CHECK(journal.find(SequenceId{6})->output == std::vector<TokenId>{7, 8, 9});
  CHECK(journal.find(SequenceId{6})->attempt == 1);
  CHECK(journal.find(SequenceId{6})->choice == 1);
  CHECK(journal.find(SequenceId{5})->output.empty());
  journal.append(JournalEnded{9});
  CHECK(!journal.find(SequenceId{5}));
  CHECK(journal.sequences() == 0);
  CHECK(journal.requests() == 0);
  CHECK(journal.tokens() == 0);
}
