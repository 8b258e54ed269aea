#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/ids.h"
#include "runtime/token_rules.h"

namespace troupe {

/// How the next token is chosen. Names and defaults are OpenAI's and vLLM's.
struct SamplingParams {
  float temperature = 1.0f;         ///< 0: greedy, ties to the lowest id
  float top_p = 1.0f;               ///< (0, 1]
  std::int32_t top_k = 0;           ///< 0: all
  float min_p = 0.0f;               ///< [0, 1]
  float repetition_penalty = 1.0f;  ///< > 0; over prompt and output
  float presence_penalty = 0.0f;    ///< [-2, 2]; over output
  float frequency_penalty = 0.0f;   ///< [-2, 2]; over output
  std::uint64_t seed = 0;           ///< the Router draws it when the request has none
  std::uint32_t choice = 0;         ///< which of the request's `n`
  /// -1: none, 0: the chosen token's only, k: and the k most likely.
  std::int32_t top_logprobs = -1;
  std::shared_ptr<const TokenRules> rules;  ///< null: any token may come; shared by all choices
  /// Rules are compared by what they say.
  bool operator==(const SamplingParams& other) const;
};

/// A token and its natural-log probability, before temperature and penalties.
struct TokenLogprob {
  TokenId token = 0;
  float logprob = 0.0f;
  bool operator==(const TokenLogprob&) const = default;
};

/// One position's outcome: the token there, and the most likely ones if asked for.
struct TokenOutput {
  TokenId token = 0;
  float logprob = 0.0f;
  std::vector<TokenLogprob> top;  ///< best first, ties by lowest id
  bool operator==(const TokenOutput&) const = default;
};

enum class FinishReason : std::uint8_t { kNone, kStop, kLength };

}  // namespace troupe
