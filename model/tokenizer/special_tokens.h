#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "model/json_reader.h"
#include "model/tokenizer/added_tokens.h"

/// How the files of Hugging Face's tokenizers write a token.
namespace troupe {

/// The special tokens that tokenizer_config.json and special_tokens_map.json name, each by a key.
inline constexpr const char* kSpecialTokenKeys[] = {"bos_token", "eos_token", "unk_token",
                                                    "sep_token", "pad_token", "cls_token",
                                                    "mask_token"};

/// A token's text: a string, or the `content` of an object; anything else has none.
std::optional<std::string> token_text(const nlohmann::json& value);

/// An AddedToken as serialised by tokenizers' added_vocabulary.rs, without its id. Errors are the
/// reader's; `normalized` is as if not special unless it says otherwise.
AddedToken read_added_token(JsonReader& reader, bool special_by_default = false);

}  // namespace troupe
