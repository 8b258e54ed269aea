#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/chat/chat_format.h"
#include "model/generation_config.h"
#include "model/spec/model_spec.h"
#include "model/tokenizer/tokenizer.h"
#include "runtime/result.h"

namespace troupe {

struct EndToken {
  TokenId id = 0;
  /// "generation_config", "config", "tokenizer", "chat_template".
  std::vector<std::string_view> told_by;
};

/// Which tokens begin texts and end answers, by all that a checkpoint's files say. No file says it
/// all: the token that ends a turn is in one, the token that ends a text in another.
struct TextEnds {
  std::vector<TokenId> begin;         ///< in front of a text
  std::optional<TokenId> chat_begin;  ///< the special token that a chat begins with
  std::vector<EndToken> end;          ///< of an answer: any of them
};

/// What they are made of; `tokenizer` is null for a model that takes ids only.
struct TextEndSources {
  const GenerationConfig& generation;
  const ModelSpec& spec;
  const Tokenizer* tokenizer = nullptr;
  const Result<ChatFormat>& chat;
};

/// Ids that the model's vocabulary does not have are left out, and ids of ordinary text if there
/// are others, but for generation_config's: what programs write into config.json by default is
/// another family's.
TextEnds find_text_ends(const TextEndSources& from);

/// In a sentence, for the log.
std::string describe(const TextEnds& ends, const Tokenizer* tokenizer);

}  // namespace troupe
