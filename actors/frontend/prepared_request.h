#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/clock.h"
#include "runtime/ids.h"
#include "runtime/sampling_params.h"

namespace troupe {

/// A request that is fit to be run: validated, tokenised, every default filled in.
struct PreparedRequest {
  std::vector<TokenId> prompt;        ///< at least one token
  SamplingParams sampling;            ///< `seed` and `choice` are the Router's to fill
  std::optional<std::uint64_t> seed;  ///< none: the Router draws one
  std::uint32_t max_tokens = 0;       ///< of each choice; 0 only with prompt_logprobs
  std::uint32_t n = 1;
  std::vector<std::string> stop;      ///< valid UTF-8, none empty
  std::vector<TokenId> stop_tokens;   ///< empty with ignore_eos
  std::vector<TokenId> keep_special;  ///< special tokens that stay in the text (see StreamDecoder)
  std::int32_t prompt_logprobs = -1;  ///< as SamplingParams::top_logprobs
  Duration timeout{};
  bool streams = true;  ///< see GenerationRequest
};

}  // namespace troupe
