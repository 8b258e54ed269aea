#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/ids.h"
#include "runtime/result.h"

namespace troupe {

/// What generation_config.json recommends; requests override it. Absent keys stay empty, as do
/// values of another type than they should be: it is advice, and no model fails for want of it.
struct GenerationConfig {
  std::optional<float> temperature;  ///< 0 when do_sample is false
  std::optional<float> top_p;
  std::optional<std::int32_t> top_k;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::vector<TokenId> eos_token_ids;
  std::vector<std::string> left_out;  ///< a sentence for each value that could not be taken
};

/// Of what is no JSON object nothing is used, as transformers and vLLM have it.
GenerationConfig parse_generation_config(std::string_view json, const std::string& file);

/// Reads FOLDER/generation_config.json; a folder without one gives an empty result.
Result<GenerationConfig> load_generation_config(const std::string& folder);

}  // namespace troupe
