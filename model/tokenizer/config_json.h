#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "model/tokenizer/tokenizer_parts.h"
#include "runtime/result.h"

namespace troupe {

inline constexpr const char* kTokenizerConfigFile = "tokenizer_config.json";

/// One of the two files, as an object of no more values than a tokenizer may have.
Result<nlohmann::json> parse_tokenizer_file(std::string_view text, const char* file,
                                            std::size_t bytes_max);

/// Reads bos_token and eos_token of tokenizer_config.json. Those that are no added tokens are
/// looked up with `find`, which gives -1 for what it does not know.
Status read_bos_and_eos(const nlohmann::json& config, TokenizerParts& parts,
                        const std::function<TokenId(const std::string&)>& find);

}  // namespace troupe
