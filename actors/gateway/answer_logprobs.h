#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "actors/gateway/gateway_model.h"
#include "actors/gateway/json_writer.h"
#include "runtime/kept_tokens.h"
#include "actors/gateway/text_offsets.h"

namespace troupe {

/// How tokens are shown: as their text, or as "token_id:N".
struct TokenNames {
  const GatewayModel& model;
  bool as_ids;
  bool special_in_text = false;  ///< the answer's text has special tokens, too
  std::string of(TokenId id) const { return as_ids ? id_of(id) : text_of(id); }
  /// A part of a character is "bytes:\xf0", as OpenAI has it; what has no bytes is its id.
  std::string text_of(TokenId id) const;
  static std::string id_of(TokenId id) { return "token_id:" + std::to_string(id); }
};

/// How far a `logprobs` object has been written.
struct LogprobsPlace {
  bool open = false;
  std::size_t list = 0, row = 0;
};

/// A prompt that is shown before an answer's tokens.
struct EchoedPrompt {
  const std::string& text;
  const std::vector<TokenId>& tokens;
  const KeptTokens& logprobs;  ///< of tokens 1, 2, ...
  std::size_t alternatives;    ///< so many of each are shown
};

/// `logprobs` of a chat: {"content": [...]}. All write until it is all there (true), or until the
/// JSON holds `bytes_max`, and go on from `place` when they are called again.
bool write_chat_logprobs(JsonWriter& json, const TokenNames& names, const KeptTokens& tokens,
                         LogprobsPlace& place, std::size_t bytes_max);

/// `logprobs` of a Response's text, a list. All of it is written at once.
struct TextLogprobs {
  std::size_t first = 0;  ///< from this token on
  bool bytes = false;     ///< with them, as the finished text has them and its events do not
};
void write_text_logprobs(JsonWriter& json, const TokenNames& names, const KeptTokens& tokens,
                         const TextLogprobs& what);

/// `prompt_logprobs`, as vLLM has them: by position, what is known of the tokens there, by their
/// ids. The rank of a token beyond the alternatives is not known.
bool write_prompt_logprobs(JsonWriter& json, const TokenNames& names, const EchoedPrompt& prompt,
                           LogprobsPlace& place, std::size_t bytes_max);

/// `logprobs` of a completion: the lists text_offset, token_logprobs, tokens and top_logprobs.
class CompletionLogprobs {
 public:
  /// `prompt` may be null. `offsets` says where the tokens begin, and is moved past them.
  CompletionLogprobs(const TokenNames& names, const KeptTokens& tokens, const EchoedPrompt* prompt,
                     TextOffsets& offsets)
      : names_(names), tokens_(tokens), prompt_(prompt), offsets_(offsets) {}
  bool write(JsonWriter& json, LogprobsPlace& place, std::size_t bytes_max) const;

 private:
  std::size_t prompt_rows() const { return prompt_ == nullptr ? 0 : prompt_->tokens.size(); }
  TokenId token(std::size_t row) const;
  void write_cell(JsonWriter& json, std::size_t list, std::size_t row) const;
  void write_offset(JsonWriter& json, std::size_t row) const;
  void write_top(JsonWriter& json, const KeptTokens& of, std::size_t i, std::size_t most) const;

  const TokenNames& names_;
  const KeptTokens& tokens_;
  const EchoedPrompt* const prompt_;
  TextOffsets& offsets_;
};

}  // namespace troupe
