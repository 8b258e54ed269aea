#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "model/tokenizer/added_tokens.h"
#include "model/tokenizer/config_json.h"
#include "runtime/result.h"

namespace troupe {

/// The tokens, in their order and without ids, that the files beside tokenizer.json add to its
/// `added_tokens`: what added_tokens_decoder says of a token counts more than what is there; named
/// tokens and extra ones are added if they are missing; added_tokens.json and
/// special_tokens_map.json are read only where there is no added_tokens_decoder. As
/// TokenizersBackend.__init__ and _from_pretrained of transformers' tokenization files have it.
Result<std::vector<AddedToken>> told_tokens(
    const TokenizerConfig& files, const std::vector<AddedToken>& added,
    const std::unordered_map<std::string, TokenId>& vocabulary);

/// Puts them to the others. Who is not in the vocabulary gets the next id behind all, as
/// add_tokens of tokenizers' added_vocabulary.rs gives it.
void add_told(const std::vector<AddedToken>& told,
              const std::unordered_map<std::string, TokenId>& vocabulary,
              std::vector<AddedToken>& added);

}  // namespace troupe
