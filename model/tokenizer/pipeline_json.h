#pragma once

#include <nlohmann/json_fwd.hpp>

#include "model/tokenizer/tokenizer_parts.h"
#include "runtime/result.h"

namespace troupe {

/// Reads `normalizer`, `pre_tokenizer` and `decoder` of tokenizer.json.
Status read_text_stages(const nlohmann::json& root, TokenizerParts& parts);

/// Reads `post_processor` into the prefix and the suffix; the ids must have tokens. True if it has
/// a template.
Result<bool> read_post_processors(const nlohmann::json& root, TokenizerParts& parts);

}  // namespace troupe
