#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/ids.h"
#include "runtime/result.h"

namespace troupe {

struct GgufVocabulary;

/// Byte-level BPE as Hugging Face `tokenizers` does it, from a checkpoint's tokenizer.json or
/// tiktoken.model.
/// Immutable after loading, so every method may be called from any thread.
///
///     text ─► UTF-8 repair ─► added tokens cut out ─► normalizer ─► pre-tokenizer ─► BPE per word
///          ─► BOS/EOS
class Tokenizer {
 public:
  /// Reads tokenizer.json, or tiktoken.model where there is none, and, where present,
  /// tokenizer_config.json, special_tokens_map.json and added_tokens.json of a checkpoint folder;
  /// or the vocabulary in a GGUF file. Without any the error is kNotFound: such a checkpoint serves
  /// prompts given as ids.
  static Result<std::shared_ptr<const Tokenizer>> load(const std::filesystem::path& model);

  /// The same from the files' contents, of which all but the first may be empty. What the format
  /// allows but this class does not implement is an error that names the field.
  static Result<std::shared_ptr<const Tokenizer>> from_json(
      std::string_view tokenizer_json, std::string_view tokenizer_config_json,
      std::string_view special_tokens_map_json = {}, std::string_view added_tokens_json = {});
  /// The same from tiktoken.model; see tiktoken.h.
  static Result<std::shared_ptr<const Tokenizer>> from_tiktoken(
      std::string_view ranks, std::string_view tokenizer_config_json,
      std::string_view special_tokens_map_json = {});
  /// From a GGUF file's vocabulary; see gguf_vocabulary.h.
  static Result<std::shared_ptr<const Tokenizer>> from_gguf(const GgufVocabulary& vocabulary);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// Text to ids in time linear in the text. Added tokens in the text (special ones too) become
  /// their ids. Bytes that are not UTF-8 count as U+FFFD, as Python's decode(errors="replace")
  /// would. `add_special_tokens` adds the BOS (EOS) that the files ask for; leave it off for text
  /// that a chat format rendered, which has its BOS already. Fails if the vocabulary has no token
  /// for a byte of the text, and if the tokenizer's files ask for more steps or memory than they
  /// may for this text.
  Result<std::vector<TokenId>> encode(std::string_view text, bool add_special_tokens) const;

  /// No text of this many bytes has fewer tokens; in no time.
  std::size_t tokens_at_least(std::size_t text_bytes) const;

  /// Ids to text, always valid UTF-8: incomplete or invalid bytes become U+FFFD. Ids without a
  /// token are skipped, as Hugging Face does. For text that arrives token by token see
  /// StreamDecoder.
  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const;

  /// One past the largest id that has a token.
  TokenId vocab_size() const;
  /// Whether the id has a token at all; ids may have gaps.
  bool has_token(TokenId id) const;
  /// Whether the id is an added token marked special, such as BOS or <｜User｜>.
  bool is_special(TokenId id) const;
  /// The bytes that this token contributes to decoded text; possibly a part of a character. Empty
  /// for an id without a token. Valid as long as the tokenizer.
  std::string_view token_bytes(TokenId id) const;
  /// The id of an added token by its exact text, such as "</think>".
  std::optional<TokenId> added_token_id(std::string_view content) const;

  /// What `add_special_tokens` puts in front of a text.
  const std::vector<TokenId>& prefix() const;
  /// bos_token of tokenizer_config.json, or else of special_tokens_map.json.
  std::optional<TokenId> bos() const;
  /// What they name as eos_token, without repetition; both if they differ.
  std::vector<TokenId> ends() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  /// A tokenizer of the parts that `read` returns; out of memory is an error.
  template <class Read>
  static Result<std::shared_ptr<const Tokenizer>> make(Read read);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace troupe
