#pragma once

#include <string_view>

#include "model/tokenizer/config_json.h"
#include "model/tokenizer/tokenizer_parts.h"
#include "runtime/result.h"

namespace troupe {

/// Reads tokenizer.json's contents. Errors name file and field.
Result<TokenizerParts> parse_tokenizer(std::string_view tokenizer_json,
                                       const TokenizerConfig& files);

}  // namespace troupe
