#include "model/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/json_reader.h"
#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/utf8.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

using Json = nlohmann::json;

constexpr const char* kFile = "tokenizer.json";
constexpr const char* kConfigFile = "tokenizer_config.json";
/// Values in tokenizer.json. A vocabulary of a million tokens with its merges takes 4 million; each
/// takes up to 100 bytes while the file is read.
constexpr std::size_t kJsonValuesMax = 16u << 20;
/// Looking for added tokens takes at most this many steps a byte of text.
constexpr std::size_t kAddedTokenBytesMax = 1024;
constexpr std::size_t kAddedTokensMax = 1u << 20;
/// Ids may have gaps, but not many more than there are tokens: the table of tokens has an entry
/// each.
constexpr std::size_t kIdGapsMax = 1u << 16;

/// The pattern of ByteLevel, from GPT-2 (openai/gpt-2, src/encoder.py).
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

Error field_error(const std::string& field, const std::string& what) {
  return corrupt(std::string(kFile) + ": " + field + " " + what);
}

Error unsupported(const std::string& field, const std::string& what) {
  return invalid_argument(std::string(kFile) + ": " + field + " " + what +
                          ", which is not supported; Troupe reads byte-level BPE tokenizers");
}

std::string in_quotes(std::string_view text) {
  std::string shown(text.substr(0, 60));
  return "\"" + utf8::repair(shown) + (shown.size() < text.size() ? "..." : "") + "\"";
}

const Json& child(const Json& object, const char* key) {
  static const Json kNull;
  if (!object.is_object()) return kNull;
  const auto it = object.find(key);
  return it == object.end() ? kNull : *it;
}

/// The string `type` of a component; empty if there is none.
std::string type_of(const Json& component) {
  const Json& type = child(component, "type");
  return type.is_string() ? type.get<std::string>() : std::string();
}

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

class TokenizerReader {
 public:
  explicit TokenizerReader(const Json& root) : root_(root) {}

  Result<TokenizerParts> run(const Json* config) {
    for (auto step : {&TokenizerReader::read_added_tokens, &TokenizerReader::read_vocabulary,
                      &TokenizerReader::read_merges, &TokenizerReader::read_normalizer,
                      &TokenizerReader::read_pre_tokenizer, &TokenizerReader::read_decoder,
                      &TokenizerReader::read_post_processor}) {
      const Status status = (this->*step)();
      if (!status) return status.error();
    }
    if (config != nullptr) {
      const Status status = read_config(*config);
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
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::string where = "added_tokens[" + std::to_string(i) + "]";
      JsonReader reader(list[i], std::string(kFile) + ": " + where);
      AddedToken token;
      token.id = reader.int32("id", 0, limits::kDimensionMax - 1);
      token.content = reader.string("content");
      token.special = reader.boolean_or("special", false);
      token.single_word = reader.boolean_or("single_word", false);
      token.lstrip = reader.boolean_or("lstrip", false);
      token.rstrip = reader.boolean_or("rstrip", false);
      token.normalized = reader.boolean_or("normalized", !token.special);
      if (!reader.ok()) return reader.status();
      if (token.content.empty() || token.content.size() > kAddedTokenBytesMax) {
        return field_error(where + ".content",
                           "should have 1 to " + std::to_string(kAddedTokenBytesMax) + " bytes");
      }
      if (!parts_.added_ids.emplace(token.content, token.id).second) {
        return field_error(where, "repeats the token " + in_quotes(token.content));
      }
      added_.push_back(std::move(token));
    }
    return {};
  }

  Status check_model() const {
    const Json& model = child(root_, "model");
    if (!model.is_object()) return field_error("model", "should be an object");
    const std::string type = type_of(model);
    if (type != "BPE" && !child(model, "type").is_null()) {
      return unsupported("model.type", "is " + in_quotes(type));
    }
    const Json& dropout = child(model, "dropout");
    if (!dropout.is_null() && dropout != 0) return unsupported("model.dropout", "is set");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      const Json& value = child(model, key);
      if (!value.is_null() && value != "") {
        return unsupported(std::string("model.") + key, "is set");
      }
    }
    const Json& byte_fallback = child(model, "byte_fallback");
    if (!byte_fallback.is_null() && byte_fallback != false) {
      return unsupported("model.byte_fallback", "is not false");
    }
    return {};
  }

  Status read_vocabulary() {
    const Status status = check_model();
    if (!status) return status;
    const Json& vocab = child(child(root_, "model"), "vocab");
    if (!vocab.is_object()) return field_error("model.vocab", "should be an object");
    TokenId id_max = -1;
    vocab_.reserve(vocab.size());
    for (const auto& [content, value] : vocab.items()) {
      if (!value.is_number_unsigned() ||
          value.get<std::uint64_t>() >= static_cast<std::uint64_t>(limits::kDimensionMax)) {
        return field_error("model.vocab", "gives " + in_quotes(content) +
                                              " an id that is not from 0 to " +
                                              std::to_string(limits::kDimensionMax - 1));
      }
      const TokenId id = value.get<TokenId>();
      id_max = std::max(id_max, id);
      vocab_.emplace(content, id);
    }
    for (const AddedToken& token : added_) id_max = std::max(id_max, token.id);
    if (static_cast<std::size_t>(id_max) + 1 > 2 * (vocab_.size() + added_.size()) + kIdGapsMax &&
        id_max >= 0) {
      return field_error("model.vocab",
                         "has too few tokens for its largest id, " + std::to_string(id_max));
    }
    parts_.tokens.resize(static_cast<std::size_t>(id_max + 1));
    return fill_table();
  }

  Status fill_table() {
    TokenTable& tokens = parts_.tokens;
    const bool ignore_merges = child(child(root_, "model"), "ignore_merges") == true;
    for (const auto& [content, id] : vocab_) {
      if (tokens.has(id)) {
        return field_error("model.vocab", "gives the id " + std::to_string(id) + " of " +
                                              in_quotes(content) + " to another token too");
      }
      const std::optional<std::string> bytes = alphabet_to_bytes(content);
      tokens.set(id, bytes ? *bytes : content);
      if (!bytes) continue;
      if (bytes->size() == 1) parts_.bpe.set_byte(static_cast<unsigned char>((*bytes)[0]), id);
      if (ignore_merges) parts_.bpe.add_whole_word(*bytes, id);
    }
    const Json& unk_token = child(child(root_, "model"), "unk_token");
    if (!unk_token.is_null() && !parts_.bpe.has_all_bytes()) {
      return unsupported("model.unk_token", "is set although the vocabulary lacks some bytes");
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
      if (token.special) tokens.mark_special(token.id);
      AddedTokenFinder& finder = token.normalized ? parts_.added_normalized : parts_.added_first;
      const Status status = finder.add(token);
      if (!status) return status;
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

  Status read_normalizer() {
    const Json& normalizer = child(root_, "normalizer");
    if (normalizer.is_null()) return {};
    const Json& parts = child(normalizer, "normalizers");
    if (type_of(normalizer) == "Sequence" && parts.is_array() && parts.empty()) return {};
    return unsupported("normalizer",
                       "is " + in_quotes(type_of(normalizer)) +
                           (type_of(normalizer) == "Sequence" ? " with members" : ""));
  }

  Status read_pre_tokenizer() {
    const Status status = read_stage(child(root_, "pre_tokenizer"), "pre_tokenizer");
    if (!status) return status;
    if (!byte_level_) return unsupported("pre_tokenizer", "has no ByteLevel");
    return {};
  }

  Status read_stage(const Json& stage, const std::string& where) {
    const std::string type = type_of(stage);
    if (type == "Sequence") {
      const Json& stages = child(stage, "pretokenizers");
      if (!stages.is_array()) return field_error(where + ".pretokenizers", "should be a list");
      for (std::size_t i = 0; i < stages.size(); ++i) {
        const Status status =
            read_stage(stages[i], where + ".pretokenizers[" + std::to_string(i) + "]");
        if (!status) return status;
      }
      return {};
    }
    if (byte_level_) return unsupported(where, "follows ByteLevel");
    if (type == "Split") return read_split(stage, where);
    if (type == "ByteLevel") return read_byte_level(stage, where);
    if (type == "Digits") {
      const bool individual = child(stage, "individual_digits") == true;
      return add_split(individual ? "\\p{N}" : "\\p{N}+", SplitBehavior::kIsolated, false, where);
    }
    return unsupported(where, type.empty() ? "has no type" : "is " + in_quotes(type));
  }

  Status read_byte_level(const Json& stage, const std::string& where) {
    JsonReader reader(stage, std::string(kFile) + ": " + where);
    const bool prefix_space = reader.boolean_or("add_prefix_space", true);
    const bool use_regex = reader.boolean_or("use_regex", true);
    if (!reader.ok()) return reader.status();
    byte_level_ = true;
    if (prefix_space) parts_.pre_tokenizer.add(PreTokenizer::PrefixSpace{});
    if (!use_regex) return {};
    return add_split(std::string(kGpt2Pattern), SplitBehavior::kIsolated, false, where);
  }

  Status read_split(const Json& stage, const std::string& where) {
    JsonReader reader(stage, std::string(kFile) + ": " + where);
    const std::string behavior = reader.string("behavior");
    const bool invert = reader.boolean_or("invert", false);
    if (!reader.ok()) return reader.status();
    const Json& pattern = child(stage, "pattern");
    const Json& regex = child(pattern, "Regex");
    const Json& text = child(pattern, "String");
    if (!regex.is_string() && !(text.is_string() && text != "")) {
      return field_error(where + ".pattern", "should be an object with a Regex or a String");
    }
    std::string expression;
    if (regex.is_string()) {
      expression = regex.get<std::string>();
    } else {
      for (const char c : text.get_ref<const std::string&>()) {
        const bool ascii_symbol = c > 0 && !std::isalnum(static_cast<unsigned char>(c));
        if (ascii_symbol) expression += '\\';
        expression += c;
      }
    }
    constexpr std::pair<std::string_view, SplitBehavior> kBehaviors[] = {
        {"Isolated", SplitBehavior::kIsolated},
        {"Removed", SplitBehavior::kRemoved},
        {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
        {"MergedWithNext", SplitBehavior::kMergedWithNext},
        {"Contiguous", SplitBehavior::kContiguous}};
    for (const auto& [name, value] : kBehaviors) {
      if (name == behavior) return add_split(expression, value, invert, where);
    }
    return unsupported(where + ".behavior", "is " + in_quotes(behavior));
  }

  Status add_split(const std::string& expression, SplitBehavior behavior, bool invert,
                   const std::string& where) {
    Result<Pattern> pattern = Pattern::compile(expression);
    if (!pattern)
      return field_error(where + ".pattern", "cannot be used: " + pattern.error().message);
    parts_.pre_tokenizer.add(PreTokenizer::Split{std::move(*pattern), behavior, invert});
    return {};
  }

  Status read_decoder() {
    const std::string type = type_of(child(root_, "decoder"));
    if (type == "ByteLevel") return {};
    return unsupported("decoder", type.empty() ? "is missing" : "is " + in_quotes(type));
  }

  Status read_post_processor() {
    return read_processor(child(root_, "post_processor"), "post_processor");
  }

  Status read_processor(const Json& processor, const std::string& where) {
    const std::string type = type_of(processor);
    // ByteLevel only changes offsets here.
    if (processor.is_null() || type == "ByteLevel") return {};
    if (type == "TemplateProcessing") return read_template(processor, where);
    const Json& members = child(processor, "processors");
    if (type != "Sequence" || !members.is_array()) {
      return unsupported(where, type.empty() ? "has no type" : "is " + in_quotes(type));
    }
    for (std::size_t i = 0; i < members.size(); ++i) {
      const Status status =
          read_processor(members[i], where + ".processors[" + std::to_string(i) + "]");
      if (!status) return status;
    }
    return {};
  }

  Status read_template(const Json& processor, const std::string& where) {
    if (has_template_) return unsupported(where, "is a second template");
    has_template_ = true;
    const Json& pieces = child(processor, "single");
    if (!pieces.is_array()) return field_error(where + ".single", "should be a list");
    bool text_seen = false;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const std::string piece_where = where + ".single[" + std::to_string(i) + "]";
      const Json& sequence = child(pieces[i], "Sequence");
      if (!sequence.is_null()) {
        if (child(sequence, "id") != "A" || text_seen) {
          return unsupported(piece_where, "is not the one sequence A");
        }
        text_seen = true;
        continue;
      }
      const Json& name = child(child(pieces[i], "SpecialToken"), "id");
      if (!name.is_string()) {
        return field_error(piece_where, "should be a Sequence or a SpecialToken");
      }
      const Status status = append_template_token(
          child(child(processor, "special_tokens"), name.get<std::string>().c_str()),
          text_seen ? parts_.suffix : parts_.prefix, piece_where);
      if (!status) return status;
    }
    if (!text_seen) return field_error(where + ".single", "should have the sequence A");
    return {};
  }

  Status append_template_token(const Json& token, std::vector<TokenId>& out,
                               const std::string& where) {
    const Json& ids = child(token, "ids");
    if (!ids.is_array()) {
      return field_error(where, "names a token that special_tokens does not give ids");
    }
    for (const Json& id : ids) {
      if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= parts_.tokens.size() ||
          !parts_.tokens.has(id.get<TokenId>())) {
        return field_error(where, "names a token with an id that no token has");
      }
      out.push_back(id.get<TokenId>());
    }
    return {};
  }

  /// `bos_token` and the like: a string or an object with a `content`.
  Result<std::optional<TokenId>> config_token(const Json& config, const char* key) const {
    const Json& value = child(config, key);
    if (value.is_null()) return std::optional<TokenId>();
    const Json& content = value.is_object() ? child(value, "content") : value;
    if (!content.is_string()) {
      return corrupt(std::string(kConfigFile) + ": " + key + " should be a string");
    }
    const std::string& text = content.get_ref<const std::string&>();
    const auto added = parts_.added_ids.find(text);
    if (added != parts_.added_ids.end()) return std::optional<TokenId>(added->second);
    const auto known = vocab_.find(text);
    if (known != vocab_.end()) return std::optional<TokenId>(known->second);
    return corrupt(std::string(kConfigFile) + ": " + key + " is " + in_quotes(text) +
                   ", which is no token of " + kFile);
  }

  Status read_config(const Json& config) {
    Result<std::optional<TokenId>> bos = config_token(config, "bos_token");
    if (!bos) return bos.error();
    Result<std::optional<TokenId>> eos = config_token(config, "eos_token");
    if (!eos) return eos.error();
    parts_.bos = *bos;
    parts_.eos = *eos;
    JsonReader reader(config, kConfigFile);
    const Json& name = child(config, "tokenizer_class");
    // These two classes put their own template in place of the file's; the others take the file's.
    if (name != "LlamaTokenizerFast" && name != "LlamaTokenizer") return {};
    const bool named = reader.has("add_bos_token") || reader.has("add_eos_token");
    const bool add_bos = reader.boolean_or("add_bos_token", true);
    const bool add_eos = reader.boolean_or("add_eos_token", false);
    if (!reader.ok()) return reader.status();
    if (!named && has_template_) return {};
    if ((add_bos && !parts_.bos && reader.has("add_bos_token")) || (add_eos && !parts_.eos)) {
      return corrupt(std::string(kConfigFile) + ": " + (add_eos && !parts_.eos ? "eos" : "bos") +
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
  TokenizerParts parts_;
  std::vector<AddedToken> added_;
  std::unordered_map<std::string, TokenId> vocab_;
  bool byte_level_ = false;
  bool has_template_ = false;
};

Result<Json> parse_file(std::string_view text, const char* file, std::size_t bytes_max) {
  if (text.size() > bytes_max || too_many_values(text)) {
    return resource_exhausted(std::string(file) + " is larger than a tokenizer may be");
  }
  Result<Json> json = parse_json(text, file);
  if (json && !json->is_object()) return corrupt(std::string(file) + " should be a JSON object");
  return json;
}

}  // namespace

Result<TokenizerParts> parse_tokenizer(std::string_view tokenizer_json,
                                       std::string_view config_json) {
  Result<Json> root = parse_file(tokenizer_json, kFile, limits::kTokenizerBytesMax);
  if (!root) return root.error();
  if (config_json.empty()) return TokenizerReader(*root).run(nullptr);
  Result<Json> config = parse_file(config_json, kConfigFile, limits::kConfigBytesMax);
  if (!config) return config.error();
  return TokenizerReader(*root).run(&*config);
}

}  // namespace troupe
