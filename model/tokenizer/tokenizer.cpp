#include "model/tokenizer/tokenizer.h"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <new>
#include <utility>

#include "model/gguf/gguf.h"
#include "model/json_reader.h"
#include "model/tokenizer/config_json.h"
#include "model/tokenizer/gguf_text.h"
#include "model/tokenizer/gguf_vocabulary.h"
#include "model/tokenizer/tiktoken.h"
#include "model/tokenizer/tokenizer_json.h"
#include "model/tokenizer/utf8.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

/// Positions in a text are 31 bits in the merge lists.
constexpr std::size_t kTextBytesMax = 1u << 30;

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(TokenizerParts of)
      : parts(std::move(of)), bytes_per_token(parts.bytes_per_token()) {}

  TokenizerParts parts;
  std::optional<std::size_t> bytes_per_token;
};

namespace {

/// As people write it: 0x0A.
std::string hex_byte(unsigned char byte) {
  char text[8];
  std::snprintf(text, sizeof text, "0x%02X", byte);
  return text;
}

/// The work on one text: the same scratch memory serves all of its words.
class Encoding {
 public:
  Encoding(const TokenizerParts& parts, std::size_t text_bytes, std::vector<TokenId>& ids)
      : parts_(parts),
        ids_(ids),
        scratch_(text_bytes),
        normalized_room_(std::min(text_bytes * limits::kTextGrowthMax + limits::kTextGrowthBytesMax,
                                  kTextBytesMax)) {}

  Status run(std::string_view text) {
    std::vector<AddedTokenFinder::Piece> pieces;
    const Status status = parts_.added_first.split(text, matcher_, pieces);
    if (!status) return status;
    for (const AddedTokenFinder::Piece& piece : pieces) {
      if (piece.id >= 0) {
        ids_.push_back(piece.id);
        continue;
      }
      const Status done =
          between(text.substr(piece.range.begin, piece.range.end - piece.range.begin));
      if (!done) return done;
    }
    return {};
  }

 private:
  Status between(std::string_view text) {
    if (parts_.normalizer.stages() > 0) {
      Result<std::string> normalized = parts_.normalizer.apply(text, normalized_room_);
      if (!normalized) return normalized.error();
      normalized_ = std::move(*normalized);
      normalized_room_ -= normalized_.size();
      text = normalized_;
    }
    std::vector<AddedTokenFinder::Piece> pieces;
    const Status status = parts_.added_normalized.split(text, matcher_, pieces);
    if (!status) return status;
    for (const AddedTokenFinder::Piece& piece : pieces) {
      if (piece.id >= 0) {
        ids_.push_back(piece.id);
        continue;
      }
      const Status done =
          words(text.substr(piece.range.begin, piece.range.end - piece.range.begin));
      if (!done) return done;
    }
    return {};
  }

  Status words(std::string_view text) {
    storage_.clear();
    const Status status = parts_.pre_tokenizer.split(text, matcher_, words_, storage_);
    if (!status) return status;
    for (const std::string_view word : words_) {
      if (Status checked = check_bytes(word); !checked) return checked;
      parts_.bpe.encode(word, scratch_, ids_);
    }
    return {};
  }

  /// A text is never shortened in silence, and neither is what the tokenizer puts before it.
  Status check_bytes(std::string_view word) const {
    if (parts_.bpe.has_all_bytes()) return {};
    const auto lacking = std::find_if(word.begin(), word.end(), [this](char c) {
      return !parts_.bpe.has_byte(static_cast<unsigned char>(c));
    });
    if (lacking == word.end()) return {};
    return invalid_argument("the text, as the tokenizer splits it, has the byte " +
                            hex_byte(static_cast<unsigned char>(*lacking)) +
                            ", for which the model's vocabulary has no token; leave it out");
  }

  const TokenizerParts& parts_;
  std::vector<TokenId>& ids_;
  Matcher matcher_;
  Bpe::Scratch scratch_;
  std::vector<std::string_view> words_;
  std::deque<std::string> storage_;
  std::string normalized_;       // The text that the words point into.
  std::size_t normalized_room_;  // Bytes that may still come of what is left of the text.
};

Result<std::shared_ptr<const Tokenizer>> load_gguf(const std::string& path) {
  const auto opened = open_gguf(path);
  if (!opened) return opened.error();
  const auto vocabulary = gguf_vocabulary(opened->header);
  auto tokenizer = vocabulary ? Tokenizer::from_gguf(*vocabulary)
                              : Result<std::shared_ptr<const Tokenizer>>(vocabulary.error());
  if (tokenizer) return tokenizer;
  return Error{tokenizer.error().code, path + ": " + tokenizer.error().message};
}

Result<std::shared_ptr<const Tokenizer>> load_folder(const std::filesystem::path& dir) {
  const auto read = [&dir](const char* name, std::size_t bytes_max) {
    return read_text_file((dir / name).string(), bytes_max);
  };
  const auto absent = [](const Result<std::string>& file) {
    return !file && file.error().code == ErrorCode::kNotFound;
  };
  std::string beside[3];
  for (const auto& [name, text] : {std::pair{kTokenizerConfigFile, &beside[0]},
                                   {kSpecialTokensMapFile, &beside[1]},
                                   {kAddedTokensFile, &beside[2]}}) {
    Result<std::string> found = read(name, limits::kConfigBytesMax);
    if (!found && !absent(found)) return found.error();
    if (found) *text = std::move(*found);
  }
  const Result<std::string> file = read("tokenizer.json", limits::kTokenizerBytesMax);
  if (!file && !absent(file)) return file.error();
  const Result<std::string> ranks = file ? Result<std::string>(std::string())
                                         : read("tiktoken.model", limits::kTokenizerBytesMax);
  if (!ranks) return absent(ranks) ? file.error() : ranks.error();
  Result<std::shared_ptr<const Tokenizer>> tokenizer =
      file ? Tokenizer::from_json(*file, beside[0], beside[1], beside[2])
           : Tokenizer::from_tiktoken(*ranks, beside[0], beside[1]);
  if (tokenizer) return tokenizer;
  return Error{tokenizer.error().code, dir.string() + "/" + tokenizer.error().message};
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

Result<std::shared_ptr<const Tokenizer>> Tokenizer::load(const std::filesystem::path& model) {
  const auto gguf = find_gguf(model.string());
  if (!gguf) return gguf.error();
  return *gguf ? load_gguf(**gguf) : load_folder(model);
}

template <class Read>
Result<std::shared_ptr<const Tokenizer>> Tokenizer::make(Read read) {
  try {
    Result<TokenizerParts> parts = read();
    if (!parts) return parts.error();
    auto impl = std::make_unique<Impl>(std::move(*parts));
    return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(impl)));
  } catch (const std::bad_alloc&) {
    return resource_exhausted("the tokenizer takes more memory than there is");
  }
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_json(
    std::string_view tokenizer_json, std::string_view tokenizer_config_json,
    std::string_view special_tokens_map_json, std::string_view added_tokens_json) {
  return make([&]() -> Result<TokenizerParts> {
    const auto files =
        parse_tokenizer_config(tokenizer_config_json, special_tokens_map_json, added_tokens_json);
    return files ? parse_tokenizer(tokenizer_json, *files) : files.error();
  });
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_tiktoken(
    std::string_view ranks, std::string_view tokenizer_config_json,
    std::string_view special_tokens_map_json) {
  return make([&]() -> Result<TokenizerParts> {
    const auto files = parse_tokenizer_config(tokenizer_config_json, special_tokens_map_json, {});
    return files ? parse_tiktoken(ranks, *files) : files.error();
  });
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_gguf(const GgufVocabulary& vocabulary) {
  return make([&] { return parse_gguf_vocabulary(vocabulary); });
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text,
                                               bool add_special_tokens) const {
  if (text.size() > kTextBytesMax) {
    return resource_exhausted("a text of " + std::to_string(text.size()) +
                              " bytes is longer than can be tokenized");
  }
  std::string repaired;
  if (!utf8::valid(text)) {
    repaired = utf8::repair(text);
    text = repaired;
  }
  const TokenizerParts& parts = impl_->parts;
  std::vector<TokenId> ids;
  if (add_special_tokens) ids = parts.prefix;
  const Status status = Encoding(parts, text.size(), ids).run(text);
  if (!status) return status.error();
  if (add_special_tokens) ids.insert(ids.end(), parts.suffix.begin(), parts.suffix.end());
  return ids;
}

std::size_t Tokenizer::tokens_at_least(std::size_t text_bytes) const {
  const std::optional<std::size_t> each = impl_->bytes_per_token;
  return each ? (text_bytes + *each - 1) / *each : 0;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  std::string bytes;
  for (const TokenId id : ids) {
    if (!skip_special_tokens || !is_special(id)) bytes += token_bytes(id);
  }
  return utf8::repair(bytes);
}

TokenId Tokenizer::vocab_size() const { return static_cast<TokenId>(impl_->parts.tokens.size()); }
bool Tokenizer::has_token(TokenId id) const { return impl_->parts.tokens.has(id); }
bool Tokenizer::is_special(TokenId id) const { return impl_->parts.tokens.is_special(id); }

std::string_view Tokenizer::token_bytes(TokenId id) const { return impl_->parts.tokens.bytes(id); }

std::optional<TokenId> Tokenizer::added_token_id(std::string_view content) const {
  const auto found = impl_->parts.added_ids.find(std::string(content));
  if (found == impl_->parts.added_ids.end()) return std::nullopt;
  return found->second;
}

const std::vector<TokenId>& Tokenizer::prefix() const { return impl_->parts.prefix; }
std::optional<TokenId> Tokenizer::bos() const { return impl_->parts.bos; }
std::vector<TokenId> Tokenizer::ends() const {
  std::vector<TokenId> ends = impl_->parts.other_ends;
  if (impl_->parts.eos) ends.insert(ends.begin(), *impl_->parts.eos);
  return ends;
}

}  // namespace troupe
