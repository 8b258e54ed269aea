#include "actors/router/journal_words.h"

#include <variant>
#include <vector>

#include "runtime/overloaded.h"

namespace troupe {
namespace {

/// Beside what follows, about: of a record, and of a token or a log-probability in it.
constexpr std::size_t kRecordWords = 24, kTokenWords = 4, kLogprobWords = 2;

std::size_t words_of(const std::vector<TokenLogprob>& logprobs) {
  return kLogprobWords * logprobs.size();
}
std::size_t words_of(const PreparedRequest& request) {
  const std::size_t form = request.name ? request.name->form.size() : 0;
  const std::size_t rules = request.sampling.rules ? request.sampling.rules->bytes() : 0;
  return request.prompt.size() + (form + rules) / sizeof(TokenId);
}
/// With their alternatives.
std::size_t words_of(const std::vector<TokenOutput>& tokens) {
  std::size_t words = 0;
  for (const TokenOutput& token : tokens) words += kTokenWords + words_of(token.top);
  return words;
}

}  // namespace

std::size_t record_words(const JournalRecord& record) {
  return kRecordWords + std::visit(Overloaded{
                                       [](const JournalAccepted& r) {
                                         return words_of(*r.prepared) + 64;
                                       },
                                       [](const JournalTokens& r) { return words_of(r.tokens); },
                                       [](const JournalPrompt& r) { return words_of(r.logprobs); },
                                       [](const JournalHidden& r) { return r.values.size(); },
                                       [](const auto&) { return std::size_t{0}; },
                                   },
                                   record);
}

}  // namespace troupe
