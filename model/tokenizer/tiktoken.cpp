#include "model/tokenizer/tiktoken.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "model/json_reader.h"
#include "model/tokenizer/config_json.h"
#include "model/tokenizer/json_fields.h"
#include "model/tokenizer/special_tokens.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

using Json = nlohmann::json;

constexpr const char* kTiktokenFile = "tiktoken.model";
constexpr std::size_t kReservedTokens = 256;
/// Of all lines together; each takes some 100 bytes while the file is read.
constexpr std::size_t kTokensMax = 4u << 20;

Error line_error(std::size_t line, const std::string& what) {
  return corrupt(std::string(kTiktokenFile) + ": line " + std::to_string(line + 1) + " " + what);
}

int base64_digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/// The bytes of padded base64, of which there is one spelling; empty if it is none.
std::string from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return {};
  for (int padding = 0; padding < 2 && text.ends_with('='); ++padding) text.remove_suffix(1);
  std::string bytes;
  std::uint32_t bits = 0;
  int held = 0;
  for (const char c : text) {
    const int digit = base64_digit(c);
    if (digit < 0) return {};
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    bytes += static_cast<char>(bits >> held & 0xFF);
  }
  const bool rest_is_zero = (bits & ((1u << held) - 1)) == 0;
  return rest_is_zero ? bytes : std::string();
}

class TiktokenReader {
 public:
  Result<TokenizerParts> run(std::string_view ranks, const TokenizerConfig& files) {
    Status status = read_ranks(ranks);
    if (status) status = read_added_tokens(child(files.config, "added_tokens_decoder"));
    if (status) status = fill(files);
    if (!status) return status.error();
    return std::move(parts_);
  }

 private:
  Status read_ranks(std::string_view text) {
    std::unordered_set<std::string_view> seen;
    for (std::size_t line = 0; !text.empty(); ++line) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      std::string_view row = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      if (row.ends_with('\r')) row.remove_suffix(1);
      if (row.empty()) continue;
      const std::size_t space = std::min(row.find(' '), row.size());
      const std::string_view encoded = row.substr(0, space);
      std::string bytes = from_base64(encoded);
      std::size_t rank = 0;
      const char* row_end = row.data() + row.size();
      const auto parsed = std::from_chars(std::min(row.data() + space + 1, row_end), row_end, rank);
      if (bytes.empty() || bytes.size() > kRankedBytesMax || parsed.ec != std::errc() ||
          parsed.ptr != row_end) {
        return line_error(line, "should be a token of 1 to " + std::to_string(kRankedBytesMax) +
                                    " bytes in base64, a space and a rank");
      }
      if (rank != bytes_.size()) {
        return line_error(line, "has the rank " + std::to_string(rank) + " where " +
                                    std::to_string(bytes_.size()) + " should follow");
      }
      if (!seen.insert(encoded).second) return line_error(line, "repeats a token");
      if (bytes_.size() == kTokensMax) return line_error(line, "is one too many");
      bytes_.push_back(std::move(bytes));
    }
    if (bytes_.empty()) return corrupt(std::string(kTiktokenFile) + " has no tokens");
    return {};
  }

  Status read_added_tokens(const Json& list) {
    if (!list.is_null() && !list.is_object()) {
      return config_error("added_tokens_decoder should be an object");
    }
    std::unordered_set<std::string> contents;
    std::unordered_set<TokenId> ids;
    for (const auto& [key, value] : list.items()) {
      const std::string where = "added_tokens_decoder[" + in_quotes(key) + "]";
      JsonReader reader(value, std::string(kTokenizerConfigFile) + ": " + where);
      AddedToken token = read_added_token(reader, true);
      token.normalized = false;  // there is no normalizer
      if (!reader.ok()) return reader.status();
      const auto parsed = std::from_chars(key.data(), key.data() + key.size(), token.id);
      const bool whole = parsed.ec == std::errc() && parsed.ptr == key.data() + key.size();
      const auto first = static_cast<TokenId>(bytes_.size());
      if (!whole || token.id < first || token.id - first > static_cast<TokenId>(kTokensMax)) {
        return config_error(where + " should be an id behind the " + std::to_string(first) +
                            " tokens of " + kTiktokenFile);
      }
      if (!contents.insert(token.content).second || !ids.insert(token.id).second) {
        return config_error(where + " repeats a token");
      }
      added_.push_back(std::move(token));
    }
    for (std::size_t i = 0; i < kReservedTokens; ++i) {
      AddedToken token;
      token.id = static_cast<TokenId>(bytes_.size() + i);
      token.content = "<|reserved_token_" + std::to_string(token.id) + "|>";
      token.special = true;
      if (!ids.contains(token.id) && contents.insert(token.content).second) {
        added_.push_back(std::move(token));
      }
    }
    return {};
  }

  Status fill(const TokenizerConfig& files) {
    TokenId id_max = 0;
    for (const AddedToken& token : added_) id_max = std::max(id_max, token.id);
    parts_.tokens.resize(static_cast<std::size_t>(id_max) + 1);
    std::vector<Word> words;
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      const auto id = static_cast<TokenId>(i);
      words.emplace_back(bytes_[i], id);
      parts_.tokens.set(id, bytes_[i]);
      if (bytes_[i].size() == 1) parts_.bpe.set_byte(static_cast<unsigned char>(bytes_[i][0]), id);
    }
    if (!parts_.bpe.has_all_bytes()) {
      return corrupt(std::string(kTiktokenFile) + " should have a token for each of the 256 bytes");
    }
    set_ranked_merges(parts_.bpe, words);
    parts_.bpe.set_whole_words(words, true);
    for (const AddedToken& token : added_) {
      parts_.tokens.set(token.id, token.content);
      const Status status = parts_.find_added(token);
      if (!status) return config_error("added_tokens_decoder: " + status.error().message);
    }
    const Status status = parts_.set_pre_tokenizer(*published_pre_tokenizer("kimi-k2"));
    if (!status) return status;
    return read_bos_and_eos(files, parts_, [](const std::string&) { return TokenId{-1}; });
  }

  static Error config_error(const std::string& what) {
    return corrupt(std::string(kTokenizerConfigFile) + ": " + what);
  }

  std::vector<std::string> bytes_;  // by id
  std::vector<AddedToken> added_;
  TokenizerParts parts_;
};

}  // namespace

Result<TokenizerParts> parse_tiktoken(std::string_view ranks, const TokenizerConfig& files) {
  if (ranks.size() > limits::kTokenizerBytesMax) {
    return resource_exhausted(std::string(kTiktokenFile) + " is larger than a tokenizer may be");
  }
  const Json& name = child(files.config, "tokenizer_class");
  if (name != "TikTokenTokenizer") {
    return invalid_argument(std::string(kTokenizerConfigFile) + ": tokenizer_class is " +
                            in_quotes(name.dump()) + "; " + kTiktokenFile +
                            " is read for TikTokenTokenizer (Kimi K2), whose pattern is known");
  }
  return TiktokenReader().run(ranks, files);
}

}  // namespace troupe
