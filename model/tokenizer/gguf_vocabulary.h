#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/tokenizer/tokenizer_parts.h"
#include "runtime/result.h"

namespace troupe {

/// What a GGUF file says of its tokenizer, `tokenizer.ggml.*`, where `model` is "gpt2".
struct GgufVocabulary {
  std::string pre;                  ///< the family's pre-tokenizer, such as "deepseek-v3"
  std::vector<std::string> tokens;  ///< by id, in GPT-2's alphabet of bytes
  std::vector<std::int32_t> types;  ///< `token_type`, one a token; without them all are normal
  std::vector<std::string> merges;  ///< "left right"; "kimi-k2" has none
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
};

/// Checks it and makes a tokenizer of it; errors name the key.
Result<TokenizerParts> parse_gguf_vocabulary(const GgufVocabulary& vocabulary);

}  // namespace troupe
