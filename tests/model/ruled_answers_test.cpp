#include "model/forward/ruled_answers.h"

#include <doctest/doctest.h>

#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace troupe {
namespace {

constexpr TokenId kVocab = 16;  // 0 to 9 are digits, 10 ends an answer.

std::shared_ptr<AnswerGrammars> digits() {
  std::vector<std::string> texts;
  for (char c = '0'; c <= '9'; ++c) texts.emplace_back(1, c);
  return std::make_shared<AnswerGrammars>(Vocabulary::make(std::move(texts), {}, kVocab));
}

/// A sequence in a slot: a prompt of three tokens, and its answer so far.
class Asked {
 public:
  Asked(std::uint64_t id, std::string grammar, std::int32_t slot = 0) {
    TokenRules rules;
    rules.grammar = std::move(grammar);
    rules.end_tokens = {10};
    rules.min_tokens = 1;
    sequence.id = SequenceId{id};
    sequence.table_slot = slot;
    sequence.sampling.rules = std::make_shared<const TokenRules>(std::move(rules));
  }
  /// The same rules, as a copy that came again.
  void come_again() {
    sequence.sampling.rules = std::make_shared<const TokenRules>(*sequence.sampling.rules);
  }

  /// What the tokens so far leave; nothing: not yet.
  std::vector<TokenId> next(RuledAnswers& answers) {
    const auto found = look(answers);
    REQUIRE_MESSAGE(found.ok(), (found.ok() ? "" : found.error().message));
    if (*found == nullptr) return {};
    CHECK((*found)->length() == answer.size());
    std::vector<std::uint32_t> bits(1);
    (*found)->allowed(bits, kVocab);
    std::vector<TokenId> ids;
    for (TokenId id = 0; id < kVocab; ++id)
      if (bits[0] >> id & 1) ids.push_back(id);
    return ids;
  }
  /// Asks again as steps do, until there is an answer.
  std::vector<TokenId> wait_for_next(RuledAnswers& answers) {
    std::vector<TokenId> ids;
    while (ids.empty()) {
      answers.begin();
      ids = next(answers);
    }
    return ids;
  }
  Result<RuledAnswer*> look(RuledAnswers& answers) {
    std::vector<TokenId> pool = {7, 7, 7};
    pool.insert(pool.end(), answer.begin(), answer.end());
    std::vector<std::int32_t> table(pool.size());
    std::iota(table.begin(), table.end(), 0);
    return answers.find(sequence,
                        {pool.data(), table, 1, static_cast<std::int32_t>(pool.size()), 3});
  }

  StepSequence sequence;
  std::vector<TokenId> answer;
};

using Ids = std::vector<TokenId>;

TEST_CASE("an answer is found from its tokens, wherever they were computed") {
  RuledAnswers here, elsewhere;
  here.use(digits());
  elsewhere.use(digits());
  Asked asked(1, "root ::= [12] ([3-5] [6])*");
  for (const auto& [token, wanted] :
       {std::pair{1, Ids{1, 2}}, {4, Ids{3, 4, 5, 10}}, {6, Ids{6}}}) {
    CHECK(asked.wait_for_next(here) == wanted);
    asked.answer.push_back(token);
  }
  CHECK(asked.wait_for_next(here) == Ids{3, 4, 5, 10});
  // Another shard knows nothing of it but its tokens.
  CHECK(asked.wait_for_next(elsewhere) == Ids{3, 4, 5, 10});
  // Asked again for the same token, and for one before it: a step was run again.
  CHECK(asked.wait_for_next(here) == Ids{3, 4, 5, 10});
  asked.answer = {1, 4};
  CHECK(asked.wait_for_next(here) == Ids{6});
  // And back after others: with tokens that it had not, or in the slot of another one.
  asked.come_again();
  asked.answer = {2, 3, 6, 5};
  CHECK(asked.wait_for_next(here) == Ids{6});
  Asked other(2, "root ::= [8] [9]");
  CHECK(other.wait_for_next(here) == Ids{8});
  CHECK(asked.wait_for_next(here) == Ids{6});
}

TEST_CASE("answers in their own slots do not disturb each other") {
  RuledAnswers answers;
  answers.use(digits());
  Asked one(1, "root ::= [1]{4}", 0), two(2, "root ::= [2]{4}", 1);
  StepPlanBody plan;
  plan.sequences = {one.sequence, two.sequence};
  answers.expect(plan);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(one.wait_for_next(answers) == Ids{1});
    CHECK(two.wait_for_next(answers) == Ids{2});
    one.answer.push_back(1);
    two.answer.push_back(2);
  }
  CHECK(one.wait_for_next(answers) == Ids{10});
  CHECK(two.wait_for_next(answers) == Ids{10});
}

TEST_CASE("rules without a grammar need no vocabulary") {
  RuledAnswers answers;
  Asked asked(1, "");
  Ids all(kVocab), but_the_end;
  std::iota(all.begin(), all.end(), 0);
  for (const TokenId id : all)
    if (id != 10) but_the_end.push_back(id);
  CHECK(asked.next(answers) == but_the_end);
  asked.answer = {3};
  CHECK(asked.next(answers) == all);
}

TEST_CASE(
    "a long answer that is new here is followed over several looks, and nobody waits for it") {
  RuledAnswers answers;
  answers.use(digits());
  Asked asked(1, "root ::= ([1] [2])*"), other(2, "root ::= [3]*", 1);
  // The grammars are compiled by then.
  asked.wait_for_next(answers);
  other.wait_for_next(answers);
  for (std::size_t i = 0; i < 2 * limits::kFollowedTokensMax; ++i)
    asked.answer.push_back(1 + i % 2);
  asked.answer.push_back(1);
  asked.come_again();
  other.answer = {3};
  asked.wait_for_next(answers);  // Its grammar is there again.
  asked.come_again();
  std::size_t looks = 0;
  for (Ids ids; ids.empty(); ++looks) {
    answers.begin();
    ids = asked.next(answers);
    if (!ids.empty()) CHECK(ids == Ids{2});
    // One who adds a token each step has room for it.
    CHECK(other.next(answers) == Ids{3, 10});
  }
  CHECK(looks >= 3);
}

TEST_CASE("what cannot be followed says so") {
  RuledAnswers without;
  Asked asked(1, "root ::= [1]");
  CHECK(asked.look(without).error().code == ErrorCode::kInternal);
  RuledAnswers unread;
  unread.use(std::make_shared<AnswerGrammars>(not_found("There is no tokenizer.")));
  CHECK(asked.look(unread).error().message == "There is no tokenizer.");
  RuledAnswers answers;
  answers.use(digits());
  Asked wrong(2, "root ::= (");
  Result<RuledAnswer*> found = wrong.look(answers);
  while (found.ok() && *found == nullptr) found = wrong.look(answers);
  REQUIRE_FALSE(found.ok());
  CHECK(found.error().code == ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace troupe
