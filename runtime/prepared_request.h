#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/clock.h"
#include "runtime/ids.h"
#include "runtime/pooling.h"
#include "runtime/request_name.h"
#include "runtime/sampling_params.h"

namespace troupe {

/// A request that is fit to be run: validated, tokenised, every default filled in.
struct PreparedRequest {
  std::vector<TokenId> prompt;        ///< at least one token
  SamplingParams sampling;            ///< `seed` and `choice` are the Router's to fill
  std::optional<std::uint64_t> seed;  ///< none: the Router draws one
  std::uint32_t max_tokens = 0;       ///< of each choice; 0 only if nothing is generated
  std::uint32_t n = 1;
  std::vector<std::string> stop;      ///< valid UTF-8, none empty
  std::vector<TokenId> stop_tokens;   ///< empty with ignore_eos
  bool include_stop_str_in_output = false;  ///< see GenerationRequest
  bool skip_special_tokens = true;          ///< the same
  std::vector<TokenId> keep_special;  ///< special tokens that stay in the text (see StreamDecoder)
  std::int32_t prompt_logprobs = -1;  ///< as SamplingParams::top_logprobs
  Pooling pooling = Pooling::kNone;   ///< of the prompt, with n 1 and max_tokens 0
  std::uint32_t hidden_width = 0;     ///< the model's, with pooling
  Duration timeout{};
  bool streams = true;  ///< see GenerationRequest
  std::int32_t priority = 0;
  std::shared_ptr<const RequestName> name;  ///< null: nobody asks for it again

  /// Numbers of the hidden states that it asks for.
  std::size_t hidden_values() const {
    if (pooling == Pooling::kNone) return 0;
    return (pooling == Pooling::kLast ? 1 : prompt.size()) * hidden_width;
  }
  /// By which people know it; empty: it has no name.
  std::string_view id() const { return name ? std::string_view(name->id) : std::string_view(); }
  std::uint64_t owner() const { return name ? name->owner : 0; }
};

}  // namespace troupe
