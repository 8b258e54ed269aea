#pragma once

#include <string>

#include "actors/gateway/chat_turn.h"
#include "actors/gateway/field_reader.h"

namespace troupe {

/// Reads `system` and `messages` of Anthropic's Messages API: texts, or blocks (text, thinking,
/// redacted_thinking, tool_use, tool_result). Turns in a row of one role are one turn; results of
/// tools have turns of their own. A message of role system that comes later, as command-line tools
/// send them, is said to the model with what stands before it: so what was there stays the
/// beginning of the prompt. Of `fields` the text must be there.
std::vector<ChatTurn> read_message_turns(FieldReader& fields);

}  // namespace troupe
