#include "model/tokenizer/config_json.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <utility>

#include "model/json_reader.h"
#include "model/tokenizer/json_fields.h"
#include "model/tokenizer/special_tokens.h"
#include "runtime/limits.h"

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

Result<TokenizerConfig> parse_tokenizer_config(std::string_view config_json,
                                               std::string_view special_tokens_map_json,
                                               std::string_view added_tokens_json) {
  TokenizerConfig files{Json::object(), Json::object(), Json::object()};
  for (const auto& [text, name, out] :
       {std::tuple{config_json, kTokenizerConfigFile, &files.config},
        {special_tokens_map_json, kSpecialTokensMapFile, &files.special_tokens_map},
        {added_tokens_json, kAddedTokensFile, &files.added_tokens}}) {
    if (text.empty()) continue;
    Result<Json> parsed = parse_tokenizer_file(text, name, limits::kConfigBytesMax);
    if (!parsed) return parsed.error();
    *out = std::move(*parsed);
  }
  return files;
}

Status read_bos_and_eos(const TokenizerConfig& files, TokenizerParts& parts,
                        const std::function<TokenId(const std::string&)>& find) {
  const auto id_of = [&](const std::string& text) {
    const auto added = parts.added_ids.find(text);
    return added != parts.added_ids.end() ? added->second : find(text);
  };
  for (const auto& [key, slot] : {std::pair{"bos_token", &parts.bos}, {"eos_token", &parts.eos}}) {
    std::optional<std::string> told = token_text(child(files.config, key));
    if (told == "")
      told.reset();
    else if (!told && !child(files.config, key).is_null()) {
      return corrupt(std::string(kTokenizerConfigFile) + ": " + key + " should be a string");
    }
    if (told) *slot = id_of(*told);
    if (told && **slot < 0) {
      return corrupt(std::string(kTokenizerConfigFile) + ": " + key + " is " + in_quotes(*told) +
                     ", which is no token of the tokenizer");
    }
    // Written by older programs, it may be of another vocabulary.
    const std::optional<std::string> mapped = token_text(child(files.special_tokens_map, key));
    const TokenId id = mapped ? id_of(*mapped) : -1;
    if (!*slot && id >= 0) *slot = id;
    if (slot == &parts.eos && id >= 0 && id != *parts.eos) parts.other_ends.push_back(id);
  }
  return {};
}

}  // namespace troupe
