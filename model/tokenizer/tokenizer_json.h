#pragma once

#include <string_view>

#include "model/tokenizer/tokenizer_parts.h"
#include "runtime/result.h"

namespace troupe {

/// Reads the two files' contents; `config_json` may be empty. Errors name file and field.
Result<TokenizerParts> parse_tokenizer(std::string_view tokenizer_json,
                                       std::string_view config_json);

}  // namespace troupe
