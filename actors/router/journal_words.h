#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/prepared_request.h"
#include "transport/journal_records.h"

namespace troupe {

/// Words of 4 bytes that a log-probability with so many alternatives takes
/// (SamplingParams::top_logprobs).
inline std::size_t logprob_words(std::int32_t alternatives) {
  return alternatives < 0 ? 0 : 2 * (1 + static_cast<std::size_t>(alternatives));
}
/// What the journal holds of each token of a request's output.
inline std::size_t token_words(const PreparedRequest& request) {
  return 1 + logprob_words(request.sampling.top_logprobs);
}
/// And of its prompt, with what else it takes, about.
inline std::size_t prompt_words(const PreparedRequest& request) {
  constexpr std::size_t kRequest = 256, kChoice = 64;
  const std::size_t form =
      request.name ? kRequest + request.n * kChoice + request.name->form.size() / sizeof(TokenId)
                   : 0;
  const auto& rules = request.sampling.rules;
  return form + (rules ? rules->bytes() / sizeof(TokenId) : 0) +
         request.prompt.size() * (1 + logprob_words(request.prompt_logprobs)) +
         request.hidden_values();
}

/// What a record takes as it is written or sent, about.
std::size_t record_words(const JournalRecord& record);

}  // namespace troupe
