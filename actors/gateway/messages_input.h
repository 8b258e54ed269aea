#pragma once

#include <string>

#include "actors/gateway/chat_turn.h"
#include "actors/gateway/field_reader.h"

namespace troupe {

/// Reads `system` and `messages` of Anthropic's Messages API: texts, or blocks (text, image,
/// document, thinking, redacted_thinking, tool_use, tool_result). Turns in a row of one role are
/// one turn; results of tools have turns of their own. A message of role system that comes later,
/// as command-line tools send them, is said to the model as by the user, behind what stands before
/// it: so what was there stays the beginning of the prompt.
///
/// The model sees nothing but text. For an image, or a document that is no text, it is told that
/// one was there: coding tools send a conversation with every screenshot in it again and again, and
/// a refusal would end it for good. Of `fields` the text must be there.
std::vector<ChatTurn> read_message_turns(FieldReader& fields);

}  // namespace troupe
