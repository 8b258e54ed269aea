#include "model/tokenizer/special_tokens.h"

#include <nlohmann/json.hpp>

#include "model/tokenizer/json_fields.h"

namespace troupe {

std::optional<std::string> token_text(const nlohmann::json& value) {
  const nlohmann::json& content = value.is_object() ? child(value, "content") : value;
  return content.is_string() ? std::optional(content.get<std::string>()) : std::nullopt;
}

AddedToken read_added_token(JsonReader& reader, bool special_by_default) {
  AddedToken token;
  token.content = reader.string("content");
  token.special = reader.boolean_or("special", special_by_default);
  token.single_word = reader.boolean_or("single_word", false);
  token.lstrip = reader.boolean_or("lstrip", false);
  token.rstrip = reader.boolean_or("rstrip", false);
  token.normalized = reader.boolean_or("normalized", !token.special);
  if (token.content.empty() || token.content.size() > kAddedTokenBytesMax)
    reader.fail("content", "1 to " + std::to_string(kAddedTokenBytesMax) + " bytes");
  return token;
}

}  // namespace troupe
