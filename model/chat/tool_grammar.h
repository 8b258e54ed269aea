#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/chat/answer_parser.h"
#include "runtime/ids.h"
#include "runtime/result.h"

namespace troupe {

/// A tool that an answer must call, or may.
struct Tool {
  std::string name;
  std::string parameters;  ///< a JSON schema of an object; empty: it takes none
  bool loose = false;      ///< where that schema cannot be written, any object will do
};

/// What an answer that calls tools looks like.
struct CallsWanted {
  ToolStyle style = ToolStyle::kList;
  ReasoningStart reasoning = {};
  std::vector<Tool> tools = {};  ///< of these
  bool several = true;           ///< one or more; or else one
  std::string otherwise = {};    ///< a grammar of answers that call nothing; empty: there are none
  bool says = false;             ///< or they say what they like, and may call then
  /// The token of a tag, if the tokenizer has one for it: Tokenizer::added_token_id.
  std::function<std::optional<TokenId>(std::string_view)> token_of = {};
};

/// The grammar (model/grammar/README.md) of answers that call, and say nothing else, or say what
/// they may otherwise, and call nothing, or say anything, and call then if they like. It begins
/// behind a thought in <think>; Harmony's thoughts have room in it. Llama's calls have no mark in
/// front: what begins with "{" is one, and what says something else calls nothing.
/// kInvalidArgument: a schema asks for what grammars cannot do, "tools: f: ..." says which.
Result<std::string> write_tool_grammar(const CallsWanted& wanted);

}  // namespace troupe
