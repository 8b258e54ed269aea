#pragma once

#include <string_view>

#include "model/tokenizer/config_json.h"
#include "model/tokenizer/tokenizer_parts.h"
#include "runtime/result.h"

namespace troupe {

/// Reads tiktoken.model, as Kimi K2 and its relatives have it: a line for each token with its bytes
/// in base64, a space and its rank, which is its id. Their tokenization_kimi.py has the pattern;
/// `config_json`, tokenizer_config.json, has the names of the 256 special tokens that follow
/// (<|reserved_token_ID|> where it names none), and more behind these.
Result<TokenizerParts> parse_tiktoken(std::string_view ranks, const TokenizerConfig& files);

}  // namespace troupe
