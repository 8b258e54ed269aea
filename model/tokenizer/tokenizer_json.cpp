#include "model/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "model/json_reader.h"
#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/config_json.h"
#include "model/tokenizer/json_fields.h"
#include "model/tokenizer/pipeline_json.h"
#include "model/tokenizer/special_tokens.h"
#include "model/tokenizer/told_tokens.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kModels = "byte-level BPE tokenizers";
constexpr std::size_t kAddedTokensMax = 1u << 20;
/// Ids may have gaps, but not many more than there are tokens: the table of tokens has an entry
/// each.
constexpr std::size_t kIdGapsMax = 1u << 16;

class TokenizerReader {
 public:
  TokenizerReader(const Json& root, const TokenizerConfig& files) : root_(root), files_(files) {}

  Result<TokenizerParts> run() {
    for (auto step : {&TokenizerReader::read_added_tokens, &TokenizerReader::read_stages,
                      &TokenizerReader::read_vocabulary, &TokenizerReader::read_told_tokens,
                      &TokenizerReader::fill_table, &TokenizerReader::read_merges,
                      &TokenizerReader::read_post_processor, &TokenizerReader::read_config}) {
      const Status status = (this->*step)();
      if (!status) return status.error();
    }
    return std::move(parts_);
  }

 private:
  Status read_added_tokens() {
    const Json& list = child(root_, "added_tokens");
    if (list.is_null()) return {};
    if (!list.is_array()) return field_error("added_tokens", "should be a list");
    if (list.size() > kAddedTokensMax) return field_error("added_tokens", "has too many entries");
    std::unordered_set<std::string> contents;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::string where = "added_tokens[" + std::to_string(i) + "]";
      JsonReader reader(list[i], std::string(kTokenizerFile) + ": " + where);
      AddedToken token = read_added_token(reader);
      token.id = reader.int32("id", 0, limits::kDimensionMax - 1);
      if (!reader.ok()) return reader.status();
      if (!contents.insert(token.content).second) {
        return field_error(where, "repeats the token " + in_quotes(token.content));
      }
      added_.push_back(std::move(token));
    }
    return {};
  }

  Status read_stages() { return read_text_stages(root_, parts_); }

  Status read_post_processor() {
    Result<bool> has_template = read_post_processors(root_, parts_);
    if (!has_template) return has_template.error();
    has_template_ = *has_template;
    return {};
  }

  Status check_model() const {
    const Json& model = child(root_, "model");
    if (!model.is_object()) return field_error("model", "should be an object");
    const std::string type = type_of(model);
    if (type != "BPE" && !child(model, "type").is_null()) {
      return unsupported_field("model.type", "is " + in_quotes(type), kModels);
    }
    const Json& dropout = child(model, "dropout");
    if (!dropout.is_null() && dropout != 0)
      return unsupported_field("model.dropout", "is set", kModels);
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const Json& value = child(model, key);
      if (!value.is_null() && value != "") {
        return unsupported_field(std::string("model.") + key, "is set", kModels);
      }
    }
    const Json& byte_fallback = child(model, "byte_fallback");
    if (!byte_fallback.is_null() && byte_fallback != false) {
      return unsupported_field("model.byte_fallback", "is not false", kModels);
    }
    return {};
  }

  Status read_vocabulary() {
    const Status status = check_model();
    if (!status) return status;
    const Json& vocab = child(child(root_, "model"), "vocab");
    if (!vocab.is_object()) return field_error("model.vocab", "should be an object");
    vocab_.reserve(vocab.size());
    for (const auto& [content, value] : vocab.items()) {
      if (!value.is_number_unsigned() ||
          value.get<std::uint64_t>() >= static_cast<std::uint64_t>(limits::kDimensionMax)) {
        return field_error("model.vocab", "gives " + in_quotes(content) +
                                              " an id that is not from 0 to " +
                                              std::to_string(limits::kDimensionMax - 1));
      }
      vocab_.emplace(content, value.get<TokenId>());
    }
    return {};
  }

  Status read_told_tokens() {
    const auto told = told_tokens(files_, added_, vocab_);
    if (!told) return told.error();
    add_told(*told, vocab_, added_);
    if (added_.size() <= kAddedTokensMax) return {};
    return corrupt(std::string(kTokenizerConfigFile) + ": adds too many tokens");
  }

  Status fill_table() {
    TokenId id_max = -1;
    for (const auto& [content, id] : vocab_) id_max = std::max(id_max, id);
    for (const AddedToken& token : added_) id_max = std::max(id_max, token.id);
    if (static_cast<std::size_t>(id_max) + 1 > 2 * (vocab_.size() + added_.size()) + kIdGapsMax &&
        id_max >= 0) {
      return field_error("model.vocab",
                         "has too few tokens for its largest id, " + std::to_string(id_max));
    }
    TokenTable& tokens = parts_.tokens;
    tokens.resize(static_cast<std::size_t>(id_max + 1));
    for (const auto& [content, id] : vocab_) {
      if (tokens.has(id)) {
        return field_error("model.vocab", "gives the id " + std::to_string(id) + " of " +
                                              in_quotes(content) + " to another token too");
      }
      const std::optional<std::string> bytes = alphabet_to_bytes(content);
      tokens.set(id, bytes ? *bytes : content);
      if (!bytes) continue;
      if (bytes->size() == 1) parts_.bpe.set_byte(static_cast<unsigned char>((*bytes)[0]), id);
    }
    const Json& unk_token = child(child(root_, "model"), "unk_token");
    if (!unk_token.is_null() && !parts_.bpe.has_all_bytes()) {
      return unsupported_field("model.unk_token", "is set although the vocabulary lacks some bytes",
                               kModels);
    }
    for (const AddedToken& token : added_) {
      const auto known = vocab_.find(token.content);
      if (known == vocab_.end() ? tokens.has(token.id) : known->second != token.id) {
        return field_error("added_tokens",
                           "gives " + in_quotes(token.content) + " the id " +
                               std::to_string(token.id) +
                               ", which disagrees with model.vocab or another entry");
      }
      // The byte-level decoder reads added tokens in its alphabet, too.
      if (known == vocab_.end()) {
        tokens.set(token.id, alphabet_to_bytes(token.content).value_or(token.content));
      }
      const Status status = parts_.find_added(token);
      if (!status) return field_error("added_tokens", "cannot be used: " + status.error().message);
    }
    return {};
  }

  Status read_merges() {
    const Json& merges = child(child(root_, "model"), "merges");
    if (!merges.is_array()) return field_error("model.merges", "should be a list");
    parts_.bpe.reserve_merges(merges.size());
    for (std::size_t i = 0; i < merges.size(); ++i) {
      const Status status = read_merge(merges[i], i);
      if (!status) return status;
    }
    std::vector<Word> words;
    for (const auto& [content, id] : vocab_) {
      if (alphabet_to_bytes(content)) words.emplace_back(parts_.tokens.bytes(id), id);
    }
    parts_.bpe.set_whole_words(words, child(child(root_, "model"), "ignore_merges") == true);
    return {};
  }

  Status read_merge(const Json& merge, std::size_t rank) {
    const std::string where = "model.merges[" + std::to_string(rank) + "]";
    std::string left;
    std::string right;
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    } else if (merge.is_string()) {
      const std::string& text = merge.get_ref<const std::string&>();
      const std::size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
        return field_error(where, "should be two tokens with a space between them");
      }
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else {
      return field_error(where, "should be two tokens");
    }
    const auto left_id = vocab_.find(left);
    const auto right_id = vocab_.find(right);
    const auto merged_id = vocab_.find(left + right);
    const auto& missing = left_id == vocab_.end()    ? left
                          : right_id == vocab_.end() ? right
                                                     : left + right;
    if (left_id == vocab_.end() || right_id == vocab_.end() || merged_id == vocab_.end()) {
      return field_error(
          where, "needs the token " + in_quotes(missing) + ", which model.vocab does not have");
    }
    parts_.bpe.add_merge(left_id->second, right_id->second,
                         {static_cast<std::uint32_t>(rank), merged_id->second});
    return {};
  }

  Status read_config() {
    const Status status = read_bos_and_eos(files_, parts_, [this](const std::string& text) {
      const auto known = vocab_.find(text);
      return known == vocab_.end() ? TokenId{-1} : known->second;
    });
    if (!status) return status;
    JsonReader reader(files_.config, kTokenizerConfigFile);
    const Json& name = child(files_.config, "tokenizer_class");
    // These two classes put their own template in place of the file's; the others take the file's.
    if (name != "LlamaTokenizerFast" && name != "LlamaTokenizer") return {};
    const bool named = reader.has("add_bos_token") || reader.has("add_eos_token");
    const bool add_bos = reader.boolean_or("add_bos_token", true);
    const bool add_eos = reader.boolean_or("add_eos_token", false);
    if (!reader.ok()) return reader.status();
    if (!named && has_template_) return {};
    if ((add_bos && !parts_.bos && reader.has("add_bos_token")) || (add_eos && !parts_.eos)) {
      return corrupt(std::string(kTokenizerConfigFile) + ": " +
                     (add_eos && !parts_.eos ? "eos" : "bos") +
                     "_token should name the token that add_" +
                     (add_eos && !parts_.eos ? "eos" : "bos") + "_token asks for");
    }
    parts_.prefix.clear();
    parts_.suffix.clear();
    if (add_bos && parts_.bos) parts_.prefix.push_back(*parts_.bos);
    if (add_eos) parts_.suffix.push_back(*parts_.eos);
    return {};
  }

  const Json& root_;
  const TokenizerConfig& files_;
  TokenizerParts parts_;
  std::vector<AddedToken> added_;
  std::unordered_map<std::string, TokenId> vocab_;
  bool has_template_ = false;
};

}  // namespace

Result<TokenizerParts> parse_tokenizer(std::string_view tokenizer_json,
                                       const TokenizerConfig& files) {
  Result<Json> root =
      parse_tokenizer_file(tokenizer_json, kTokenizerFile, limits::kTokenizerBytesMax);
  if (!root) return root.error();
  return TokenizerReader(*root, files).run();
}

}  // namespace troupe
