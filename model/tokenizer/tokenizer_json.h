#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/tokenizer/added_tokens.h"
#include "model/tokenizer/bpe.h"
#include "model/tokenizer/pretokenizer.h"
#include "model/tokenizer/token_table.h"
#include "runtime/result.h"

namespace troupe {

/// A tokenizer taken apart: what the two files say, checked.
struct TokenizerParts {
  TokenTable tokens;
  Bpe bpe;
  PreTokenizer pre_tokenizer;
  AddedTokenFinder added_first;       ///< `normalized` false: looked for in the whole text
  AddedTokenFinder added_normalized;  ///< `normalized` true: looked for in what is left
  std::unordered_map<std::string, TokenId> added_ids;
  std::vector<TokenId> prefix;  ///< before the text, with add_special_tokens
  std::vector<TokenId> suffix;  ///< after it
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
};

/// Reads the two files' contents; `config_json` may be empty. Errors name file and field.
Result<TokenizerParts> parse_tokenizer(std::string_view tokenizer_json,
                                       std::string_view config_json);

}  // namespace troupe
