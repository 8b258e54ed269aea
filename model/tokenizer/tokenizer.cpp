#include "model/tokenizer/tokenizer.h"

#include <deque>
#include <new>

#include "model/json_reader.h"
#include "model/tokenizer/tokenizer_json.h"
#include "model/tokenizer/utf8.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

/// Positions in a text are 31 bits in the merge lists.
constexpr std::size_t kTextBytesMax = 1u << 30;

}  // namespace

struct Tokenizer::Impl {
  TokenizerParts parts;
};

namespace {

/// The work on one text: the same scratch memory serves all of its words.
class Encoding {
 public:
  Encoding(const TokenizerParts& parts, std::vector<TokenId>& ids) : parts_(parts), ids_(ids) {}

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
    for (const std::string_view word : words_) parts_.bpe.encode(word, scratch_, ids_);
    return {};
  }

  const TokenizerParts& parts_;
  std::vector<TokenId>& ids_;
  Matcher matcher_;
  Bpe::Scratch scratch_;
  std::vector<std::string_view> words_;
  std::deque<std::string> storage_;
};

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

Result<std::shared_ptr<const Tokenizer>> Tokenizer::load(const std::filesystem::path& dir) {
  Result<std::string> file =
      read_text_file((dir / "tokenizer.json").string(), limits::kTokenizerBytesMax);
  if (!file) return file.error();
  Result<std::string> config =
      read_text_file((dir / "tokenizer_config.json").string(), limits::kConfigBytesMax);
  if (!config && config.error().code != ErrorCode::kNotFound) return config.error();
  Result<std::shared_ptr<const Tokenizer>> tokenizer =
      from_json(*file, config ? std::string_view(*config) : std::string_view());
  if (tokenizer) return tokenizer;
  return Error{tokenizer.error().code, dir.string() + "/" + tokenizer.error().message};
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_json(
    std::string_view tokenizer_json, std::string_view tokenizer_config_json) {
  try {
    Result<TokenizerParts> parts = parse_tokenizer(tokenizer_json, tokenizer_config_json);
    if (!parts) return parts.error();
    auto impl = std::make_unique<Impl>();
    impl->parts = std::move(*parts);
    return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(impl)));
  } catch (const std::bad_alloc&) {
    return resource_exhausted("tokenizer.json takes more memory than there is");
  }
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
  const Status status = Encoding(parts, ids).run(text);
  if (!status) return status.error();
  if (add_special_tokens) ids.insert(ids.end(), parts.suffix.begin(), parts.suffix.end());
  return ids;
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

std::optional<TokenId> Tokenizer::bos() const { return impl_->parts.bos; }
std::optional<TokenId> Tokenizer::eos() const { return impl_->parts.eos; }

}  // namespace troupe
