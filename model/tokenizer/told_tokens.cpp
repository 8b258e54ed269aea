#include "model/tokenizer/told_tokens.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <unordered_set>
#include <utility>

#include "model/json_reader.h"
#include "model/tokenizer/json_fields.h"
#include "model/tokenizer/special_tokens.h"

namespace troupe {
namespace {

using Json = nlohmann::json;

constexpr const char* kExtra[] = {"extra_special_tokens", "additional_special_tokens"};

/// Empty: it names none.
std::string text_of(const Json& value) { return token_text(value).value_or(""); }

bool same(const AddedToken& a, const AddedToken& b) {
  return a.special == b.special && a.single_word == b.single_word && a.lstrip == b.lstrip &&
         a.rstrip == b.rstrip && a.normalized == b.normalized;
}

class ToldTokens {
 public:
  explicit ToldTokens(const std::vector<AddedToken>& added) {
    for (const AddedToken& token : added) known_.emplace(token.content, &token);
  }

  /// An object as AddedToken is written.
  Status decoder(const Json& list) {
    if (!list.is_object()) return error("added_tokens_decoder should be an object");
    std::map<std::int64_t, const Json*> by_id;
    for (const auto& [key, value] : list.items()) {
      std::int64_t id = 0;
      const auto [end, bad] = std::from_chars(key.data(), key.data() + key.size(), id);
      if (bad != std::errc() || end != key.data() + key.size())
        return error("added_tokens_decoder[" + in_quotes(key) + "] should be an id");
      by_id.emplace(id, &value);
    }
    for (const auto& [id, value] : by_id) {
      const std::string where = "added_tokens_decoder[" + in_quotes(std::to_string(id)) + "]";
      if (token_text(*value) == "") continue;
      AddedToken token;
      if (const Status status = read(*value, where, token); !status) return status;
      const auto before = known_.find(token.content);
      if (before == known_.end() || !same(*before->second, token)) put(std::move(token));
    }
    return {};
  }

  /// What added_tokens.json has: ids by contents, which count by their order.
  Status older(const Json& list, const std::unordered_set<std::string>& named) {
    std::map<std::int64_t, std::string> by_id;
    for (const auto& [content, id] : list.items())
      if (id.is_number_integer()) by_id.emplace(id.get<std::int64_t>(), content);
    for (auto& [id, content] : by_id) {
      if (content.empty()) continue;
      AddedToken token;
      const Json entry = {{"content", content}, {"special", named.contains(content)}};
      if (const Status status = read(entry, kAddedTokensFile, token); !status) return status;
      if (!has(token.content)) put(std::move(token));
    }
    return {};
  }

  /// A token's text, or an object: it is special.
  Status special(const Json& value, const std::string& where) {
    if (token_text(value) == "" || (!value.is_string() && !value.is_object())) return {};
    AddedToken token;
    const Json entry = value.is_string() ? Json{{"content", value}, {"special", true}} : value;
    if (const Status status = read(entry, where, token); !status) return status;
    token.special = true;
    if (!has(token.content)) put(std::move(token));
    return {};
  }

  std::vector<AddedToken> take() { return std::move(told_); }

 private:
  static Error error(const std::string& what) {
    return corrupt(std::string(kTokenizerConfigFile) + ": " + what);
  }

  static Status read(const Json& entry, const std::string& where, AddedToken& token) {
    JsonReader reader(entry, std::string(kTokenizerConfigFile) + ": " + where);
    token = read_added_token(reader);
    return reader.status();
  }

  bool has(const std::string& content) const {
    return known_.contains(content) || said_.contains(content);
  }

  void put(AddedToken token) {
    said_.insert(token.content);
    told_.push_back(std::move(token));
  }

  std::unordered_map<std::string, const AddedToken*> known_;
  std::unordered_set<std::string> said_;
  std::vector<AddedToken> told_;
};

/// A list, or an object of names; anything else has nothing.
const Json& list_of(const Json& value) {
  static const Json kNothing = Json::array();
  return value.is_array() || value.is_object() ? value : kNothing;
}

/// All special tokens of these files.
std::unordered_set<std::string> named_by(const std::vector<const Json*>& files) {
  std::unordered_set<std::string> named;
  for (const Json* file : files) {
    for (const char* key : kSpecialTokenKeys) named.insert(text_of(child(*file, key)));
    for (const char* key : kExtra)
      for (const Json& item : list_of(child(*file, key))) named.insert(text_of(item));
  }
  return named;
}

}  // namespace

Result<std::vector<AddedToken>> told_tokens(
    const TokenizerConfig& files, const std::vector<AddedToken>& added,
    const std::unordered_map<std::string, TokenId>& vocabulary) {
  ToldTokens told(added);
  const Json& decoder = child(files.config, "added_tokens_decoder");
  const bool listed = !decoder.is_null();
  std::vector<const Json*> all = {&files.config};
  if (!listed) all.push_back(&files.special_tokens_map);
  Status status = listed ? told.decoder(decoder) : told.older(files.added_tokens, named_by(all));
  const auto add = [&](const Json& value, const std::string& where) {
    if (status) status = told.special(value, where);
  };
  for (const char* key : kSpecialTokenKeys) {
    add(child(files.config, key), key);
    // That file may be left from another vocabulary.
    const Json& mapped = child(files.special_tokens_map, key);
    if (!listed && vocabulary.contains(text_of(mapped))) add(mapped, key);
  }
  for (const auto& [key, value] : files.config.items())
    if (key.ends_with("_token") && value.is_string() &&
        std::ranges::find(kSpecialTokenKeys, key) == std::end(kSpecialTokenKeys))
      add(value, key);
  for (const Json* file : all)
    for (const char* key : kExtra)
      for (const Json& value : list_of(child(*file, key))) add(value, key);
  if (!status) return status.error();
  return told.take();
}

void add_told(const std::vector<AddedToken>& told,
              const std::unordered_map<std::string, TokenId>& vocabulary,
              std::vector<AddedToken>& added) {
  std::unordered_map<std::string, std::size_t> places;
  // The size counts tokens, not ids.
  TokenId next = static_cast<TokenId>(vocabulary.size());
  for (std::size_t i = 0; i < added.size(); ++i) {
    places.emplace(added[i].content, i);
    next = std::max(next, added[i].id + 1);
  }
  for (const AddedToken& token : told) {
    const auto [place, is_new] = places.emplace(token.content, added.size());
    if (is_new) {
      added.push_back(token);
      const auto known = vocabulary.find(token.content);
      added.back().id = known != vocabulary.end() ? known->second : next;
      next = std::max(next, added.back().id + 1);
    } else {
      const TokenId id = added[place->second].id;
      added[place->second] = token;
      added[place->second].id = id;
    }
  }
}

}  // namespace troupe
