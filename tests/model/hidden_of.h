#pragma once

#include <algorithm>
#include <vector>

#include "tests/model/local_model.h"

namespace troupe::testing {

inline std::vector<TokenId> some_prompt(std::int32_t vocab, std::int32_t length) {
  std::vector<TokenId> prompt;
  for (std::int32_t i = 0; i < length; ++i) prompt.push_back((i * i + 17 * i + length) % vocab);
  return prompt;
}

/// Rows `first` to `end` of a prompt, in blocks from `block` on.
inline StepSequence sequence_of(const std::vector<TokenId>& prompt, std::size_t first,
                                std::size_t end, std::int32_t block_size, std::int32_t block = 0) {
  StepSequence rows;
  rows.id = SequenceId{1};
  rows.first_position = static_cast<std::int32_t>(first);
  rows.tokens.assign(prompt.begin() + static_cast<std::ptrdiff_t>(first),
                     prompt.begin() + static_cast<std::ptrdiff_t>(end));
  rows.prompt_length = static_cast<std::int32_t>(prompt.size());
  for (std::int32_t p = 0; p < rows.prompt_length; p += block_size)
    rows.block_table.push_back(block++);
  return rows;
}

/// The hidden states of all its tokens, computed so many at a time.
inline std::vector<float> hidden_of(LocalModel& model, const std::vector<TokenId>& prompt,
                                    std::size_t chunk) {
  std::vector<float> hidden;
  for (std::size_t first = 0; first < prompt.size(); first += chunk) {
    const std::size_t end = std::min(prompt.size(), first + chunk);
    StepSequence rows = sequence_of(prompt, first, end, model.block_size());
    rows.hidden_rows = static_cast<std::int32_t>(rows.tokens.size());
    const auto results = model.step({StepId{first + 1}, {rows}});
    hidden.insert(hidden.end(), results[0].hidden.begin(), results[0].hidden.end());
  }
  return hidden;
}

}  // namespace troupe::testing
