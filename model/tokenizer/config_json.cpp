#include "model/tokenizer/config_json.h"

#include <nlohmann/json.hpp>

#include "model/json_reader.h"
#include "model/tokenizer/json_fields.h"

namespace troupe {
namespace {

using Json = nlohmann::json;

/// Values in tokenizer.json. A vocabulary of a million tokens with its merges takes 4 million; each
/// takes up to 100 bytes while the file is read.
constexpr std::size_t kJsonValuesMax = 16u << 20;

/// Commas and opening brackets outside of strings: an upper bound of the values, before any memory
/// is spent on them.
bool too_many_values(std::string_view text) {
  std::size_t values = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == ',' || c == '[' || c == '{') {
      if (++values > kJsonValuesMax) return true;
    }
  }
  return false;
}

}  // namespace

Result<Json> parse_tokenizer_file(std::string_view text, const char* file, std::size_t bytes_max) {
  if (text.size() > bytes_max || too_many_values(text)) {
    return resource_exhausted(std::string(file) + " is larger than a tokenizer may be");
  }
  Result<Json> json = parse_json(text, file);
  if (json && !json->is_object()) return corrupt(std::string(file) + " should be a JSON object");
  return json;
}

Status read_bos_and_eos(const Json& config, TokenizerParts& parts,
                        const std::function<TokenId(const std::string&)>& find) {
  for (const auto& [key, id] : {std::pair{"bos_token", &parts.bos}, {"eos_token", &parts.eos}}) {
    const Json& value = child(config, key);
    if (value.is_null()) continue;
    const Json& content = value.is_object() ? child(value, "content") : value;
    if (!content.is_string()) {
      return corrupt(std::string(kTokenizerConfigFile) + ": " + key + " should be a string");
    }
    const std::string& text = content.get_ref<const std::string&>();
    const auto added = parts.added_ids.find(text);
    *id = added != parts.added_ids.end() ? added->second : find(text);
    if (**id < 0) {
      return corrupt(std::string(kTokenizerConfigFile) + ": " + key + " is " + in_quotes(text) +
                     ", which is no token of the tokenizer");
    }
  }
  return {};
}

}  // namespace troupe
