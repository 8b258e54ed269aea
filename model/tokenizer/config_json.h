#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "model/tokenizer/tokenizer_parts.h"
#include "runtime/result.h"

namespace troupe {

inline constexpr const char* kTokenizerConfigFile = "tokenizer_config.json";
inline constexpr const char* kSpecialTokensMapFile = "special_tokens_map.json";
inline constexpr const char* kAddedTokensFile = "added_tokens.json";

/// One of a tokenizer's files, as an object of no more values than a tokenizer may have.
Result<nlohmann::json> parse_tokenizer_file(std::string_view text, const char* file,
                                            std::size_t bytes_max);

/// What stands beside a vocabulary; an object each, empty where there is no such file.
struct TokenizerConfig {
  nlohmann::json config;              ///< tokenizer_config.json
  nlohmann::json special_tokens_map;  ///< names what the other does not
  nlohmann::json added_tokens;        ///< added_tokens.json: ids by contents
};
Result<TokenizerConfig> parse_tokenizer_config(std::string_view config_json,
                                               std::string_view special_tokens_map_json,
                                               std::string_view added_tokens_json);

/// Reads bos_token and eos_token. Those that are no added tokens are looked up with `find`, which
/// gives -1 for what it does not know.
Status read_bos_and_eos(const TokenizerConfig& files, TokenizerParts& parts,
                        const std::function<TokenId(const std::string&)>& find);

}  // namespace troupe
