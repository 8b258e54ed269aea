#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "actors/frontend/text_ends.h"
#include "model/chat/chat_format.h"
#include "model/generation_config.h"
#include "model/grammar/answer_grammars.h"
#include "model/spec/model_spec.h"
#include "model/tokenizer/tokenizer.h"
#include "runtime/engine_options.h"
#include "runtime/generation.h"
#include "runtime/prepared_request.h"
#include "runtime/result.h"

namespace troupe {

/// What the doors know of the model: turns a GenerationRequest into ids and checked parameters, in
/// the caller's thread, before the Router sees it. Immutable and shared; every method is
/// thread-safe.
///
///     request ─► chat format ─► tokenizer ─► defaults ─► checks ─► PreparedRequest
class ModelFrontend {
 public:
  /// What it is made of; load() reads them from a checkpoint folder.
  struct Parts {
    std::string served_model_name;
    ModelSpec spec;
    GenerationConfig generation;
    std::shared_ptr<const Tokenizer> tokenizer;  ///< null: prompts are ids, text is empty
    Result<ChatFormat> chat = not_found("This model has no chat template.");
    std::int64_t max_model_len = 0;
    std::optional<std::uint64_t> default_seed;
    std::int32_t request_timeout_s = 600;
  };

  /// Reads the checkpoint folder `options.model`. A checkpoint without a tokenizer is served by
  /// ids, one without a chat template cannot chat: neither is an error here.
  static Result<std::shared_ptr<const ModelFrontend>> load(const EngineOptions& options);

  explicit ModelFrontend(Parts parts);

  /// Errors are kInvalidArgument and name the field first: "top_p: must be ...".
  Result<PreparedRequest> prepare(const GenerationRequest& request) const;

  /// How the answer to a chat holds thoughts (ChatFormat::reasoning); nothing for other prompts.
  ReasoningStart reasoning(const GenerationRequest& request) const;

  /// The ids of its prompt, of a chat as its template has it, all of them, however few
  /// `truncate_prompt_tokens` would keep. Errors as prepare().
  Result<std::vector<TokenId>> prompt_tokens(const GenerationRequest& request) const;
  /// Text to ids. Without a tokenizer: kInvalidArgument.
  Result<std::vector<TokenId>> tokenize(std::string_view text, bool add_special_tokens) const;
  /// Ids to text, special tokens included. Ids out of range: kInvalidArgument, as without a
  /// tokenizer.
  Result<std::string> detokenize(std::span<const TokenId> ids) const;

  const std::string& served_model_name() const { return parts_.served_model_name; }
  std::int64_t max_model_len() const { return parts_.max_model_len; }
  TokenId vocab_size() const { return parts_.spec.vocab; }
  /// The tokens that begin texts and end answers.
  const TextEnds& ends() const { return ends_; }
  /// A sentence for what generation_config.json recommends and no request could ask for.
  const std::vector<std::string>& left_out() const { return parts_.generation.left_out; }
  /// Null for a checkpoint without a tokenizer.
  const std::shared_ptr<const Tokenizer>& tokenizer() const { return parts_.tokenizer; }
  /// An error if the model cannot chat.
  const Result<ChatFormat>& chat_format() const { return parts_.chat; }

 private:
  /// A text that cannot fit into the context is refused before it is tokenised, unless it will be
  /// truncated.
  Result<std::vector<TokenId>> prompt_of_text(std::string_view field, std::string_view text,
                                              bool add_special_tokens, bool truncated) const;
  Status truncate(const GenerationRequest& request, std::vector<TokenId>& prompt) const;
  Error too_long(std::string_view field, const std::string& tokens) const;
  Status check_prompt(const GenerationRequest& request, const std::vector<TokenId>& prompt) const;
  Status fill_stops(const GenerationRequest& request, PreparedRequest& prepared) const;
  Status fill_pooling(const GenerationRequest& request, PreparedRequest& prepared) const;
  Status fill_max_tokens(const GenerationRequest& request, PreparedRequest& prepared) const;
  Status check_ids(std::string_view field, std::span<const TokenId> ids) const;

  // fill_rules.cpp
  Status fill_rules(const GenerationRequest& request, PreparedRequest& prepared) const;
  Status fill_grammar(const GenerationRequest& request, TokenRules& rules) const;
  Status fill_banned(const GenerationRequest& request, TokenRules& rules) const;
  Status fill_bias(const GenerationRequest& request, TokenRules& rules) const;
  void begin_after_thought(const GenerationRequest& request, TokenRules& rules) const;

  Parts parts_;
  TextEnds ends_;
  std::vector<TokenId> eos_tokens_;  // Those that end an answer.
  /// Those of requests, which are compiled to see that they can be: most come again.
  const std::shared_ptr<AnswerGrammars> grammars_ =
      std::make_shared<AnswerGrammars>(not_found("The doors sample nothing."));
  std::vector<TokenId> reasoning_tokens_;  // Tags that tell thoughts from the answer.
  std::vector<TokenId> calls_tokens_;      // And those that tell calls of tools.
};

}  // namespace troupe
