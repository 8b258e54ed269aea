#include "model/tokenizer/gguf_vocabulary.h"

#include <string_view>
#include <unordered_map>

#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/json_fields.h"
#include "model/tokenizer/utf8.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

/// `token_type` (llama.cpp, include/llama.h, llama_token_type).
enum GgufTokenType : std::int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

/// Added tokens of these names end an answer, whatever the file says: it has room for one end, and
/// models have several (llama.cpp, src/llama-vocab.cpp, "tokens that cause end-of-generation").
constexpr std::string_view kEnds[] = {
    "<|eot_id|>",  "<|im_end|>",    "<|end|>",     "<|return|>",    "<|call|>",
    "<|eom_id|>",  "<end_of_turn>", "<EOT>",       "<|endoftext|>", "<|end_of_text|>",
    "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"};

Error key_error(const std::string& key, const std::string& what) {
  return corrupt("tokenizer.ggml." + key + " " + what);
}

class GgufReader {
 public:
  explicit GgufReader(const GgufVocabulary& from) : from_(from) {}

  Result<TokenizerParts> run() {
    const std::optional<PublishedPreTokenizer> published = published_pre_tokenizer(from_.pre);
    if (!published) {
      return invalid_argument("tokenizer.ggml.pre is " + in_quotes(from_.pre) +
                              ", which is not supported; Troupe knows " +
                              published_pre_tokenizer_names());
    }
    Status status = parts_.set_pre_tokenizer(*published);
    if (status) status = read_tokens();
    if (status) status = read_merges();
    if (status) parts_.bpe.set_whole_words(words_, published->ignore_merges);
    if (!status) return status.error();
    read_ends(*published);
    return std::move(parts_);
  }

 private:
  Status read_tokens() {
    const std::size_t count = from_.tokens.size();
    if (count == 0 || count > static_cast<std::size_t>(limits::kDimensionMax)) {
      return key_error("tokens", "has no tokens, or too many");
    }
    if (!from_.types.empty() && from_.types.size() != count) {
      return key_error("token_type",
                       "should have an entry for each of the " + std::to_string(count) + " tokens");
    }
    parts_.tokens.resize(count);
    // Of two with one text, the later one is meant.
    for (std::size_t i = 0; i < count; ++i)
      if (type(i) != kUnused) ids_[from_.tokens[i]] = static_cast<TokenId>(i);
    for (std::size_t i = 0; i < count; ++i) {
      const Status status = read_token(static_cast<TokenId>(i));
      if (!status) return status;
    }
    for (std::size_t i = 0; i < count; ++i) {
      const auto id = static_cast<TokenId>(i);
      if (type(i) != kNormal || !is_meant(id)) continue;
      words_.emplace_back(parts_.tokens.bytes(id), id);
    }
    return {};
  }

  bool is_meant(TokenId id) const {
    const auto found = ids_.find(from_.tokens[static_cast<std::size_t>(id)]);
    return found != ids_.end() && found->second == id;
  }

  std::int32_t type(std::size_t i) const { return from_.types.empty() ? kNormal : from_.types[i]; }

  Status read_token(TokenId id) {
    const auto i = static_cast<std::size_t>(id);
    const std::string& content = from_.tokens[i];
    const std::string where = "tokens[" + std::to_string(id) + "]";
    if (!utf8::valid(content)) return key_error(where, "is no UTF-8");
    if (type(i) < kNormal || type(i) > kByte) {
      return key_error("token_type[" + std::to_string(id) + "]", "should be from 1 to 6");
    }
    // Converters leave places of the vocabulary empty.
    if (type(i) == kUnused || content.empty()) {
      parts_.tokens.set(id, content);
      return {};
    }
    if (type(i) == kNormal) {
      const std::optional<std::string> bytes = alphabet_to_bytes(content);
      if (!bytes) {
        return key_error(where, "is " + in_quotes(content) + ", which stands for no bytes");
      }
      parts_.tokens.set(id, *bytes);
      if (bytes->size() == 1 && is_meant(id))
        parts_.bpe.set_byte(static_cast<unsigned char>((*bytes)[0]), id);
      return {};
    }
    if (type(i) == kByte || content.size() > kAddedTokenBytesMax) {
      return key_error(where, "is no token of a byte-level vocabulary");
    }
    parts_.tokens.set(id, content);
    if (!is_meant(id)) return {};
    AddedToken token;
    token.id = id;
    token.content = content;
    token.special = type(i) != kUserDefined;
    return parts_.find_added(token);
  }

  Status read_merges() {
    if (from_.merges.empty() && from_.pre == "kimi-k2") {
      for (const auto& [bytes, id] : words_) {
        if (bytes.size() > kRankedBytesMax) {
          return key_error("tokens[" + std::to_string(id) + "]", "is too long");
        }
      }
      set_ranked_merges(parts_.bpe, words_);
      return {};
    }
    if (from_.merges.size() >= Bpe::kRanks) return key_error("merges", "has too many entries");
    parts_.bpe.reserve_merges(from_.merges.size());
    for (std::size_t i = 0; i < from_.merges.size(); ++i) {
      const std::string_view merge = from_.merges[i];
      const std::size_t space = merge.find(' ');
      const std::string where = "merges[" + std::to_string(i) + "]";
      if (space == std::string_view::npos) {
        return key_error(where, "should be two tokens with a space between them");
      }
      const std::string_view left = merge.substr(0, space);
      const std::string_view right = merge.substr(space + 1);
      const auto left_id = ids_.find(left);
      const auto right_id = ids_.find(right);
      const auto merged = ids_.find(std::string(left) + std::string(right));
      if (left_id == ids_.end() || right_id == ids_.end() || merged == ids_.end()) {
        return key_error(where, "needs a token that tokenizer.ggml.tokens does not have");
      }
      parts_.bpe.add_merge(left_id->second, right_id->second,
                           {static_cast<std::uint32_t>(i), merged->second});
    }
    return {};
  }

  void read_ends(const PublishedPreTokenizer& published) {
    // Converters write ids of no token where there is none.
    if (from_.bos && parts_.tokens.has(*from_.bos)) parts_.bos = from_.bos;
    if (from_.eos && parts_.tokens.has(*from_.eos)) parts_.eos = from_.eos;
    if (from_.add_bos.value_or(published.add_bos) && parts_.bos)
      parts_.prefix.push_back(*parts_.bos);
    if (from_.add_eos.value_or(false) && parts_.eos) parts_.suffix.push_back(*parts_.eos);
    for (const std::string_view end : kEnds)
      if (const auto id = parts_.added_ids.find(std::string(end)); id != parts_.added_ids.end())
        if (id->second != parts_.eos) parts_.other_ends.push_back(id->second);
  }

  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };

  const GgufVocabulary& from_;
  TokenizerParts parts_;
  std::vector<Word> words_;
  std::unordered_map<std::string, TokenId, Hash, std::equal_to<>> ids_;
};

}  // namespace

Result<TokenizerParts> parse_gguf_vocabulary(const GgufVocabulary& vocabulary) {
  return GgufReader(vocabulary).run();
}

}  // namespace troupe
