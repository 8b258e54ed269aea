#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/chat/answer_parser.h"
#include "runtime/generation.h"
#include "runtime/ids.h"
#include "runtime/result.h"

namespace troupe {

/// What the gateway has to know of the model that is served, beyond what GenerationService does by
/// itself. Immutable while the gateway runs; every method may be called from any thread.
class GatewayModel {
 public:
  virtual ~GatewayModel() = default;

  /// The name that clients call it by (--served-model-name).
  virtual std::string_view served_model_name() const = 0;
  /// Prompt and answer together, in tokens.
  virtual std::uint32_t max_model_len() const = 0;

  /// False: prompts are ids, answers' text is empty, encode() and decode() fail.
  virtual bool has_tokenizer() const = 0;
  virtual Result<std::vector<TokenId>> encode(std::string_view text,
                                              bool add_special_tokens) const = 0;
  /// What a request's prompt is for the model, before it is truncated
  /// (ModelFrontend::prompt_tokens).
  virtual Result<std::vector<TokenId>> prompt_tokens(const GenerationRequest& request) const = 0;
  /// Special tokens are written out. An id that the model does not have is kInvalidArgument.
  virtual Result<std::string> decode(std::span<const TokenId> ids) const = 0;
  /// The bytes that this token contributes to a text, possibly a part of a character; empty if
  /// there is no such token. Valid as long as the model.
  virtual std::string_view token_bytes(TokenId id) const = 0;
  /// A token that is left out of an answer's text, such as the end of it.
  virtual bool is_special(TokenId id) const = 0;

  /// How answers of chats hold thoughts, which go to `reasoning_content`.
  virtual ReasoningStyle reasoning_style() const = 0;
  /// And that of this request, by its prompt (ModelFrontend::reasoning).
  virtual ReasoningStart reasoning(const GenerationRequest& request) const = 0;
  /// How they call tools (ChatFormat::tool_style).
  virtual ToolStyle tool_style() const = 0;
  /// The token of a tag; none if the tokenizer makes several of it.
  virtual std::optional<TokenId> added_token_id(std::string_view tag) const = 0;
};

}  // namespace troupe
