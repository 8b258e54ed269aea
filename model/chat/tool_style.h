#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>

namespace troupe {

/// How a model writes that it calls a tool.
enum class ToolStyle : unsigned char {
  kNone,        ///< in no way that is known here
  kDeepSeekV3,  ///< V3 and R1, the arguments in a block of code: tagged_calls.h
  kDeepSeekV31,
  kKimi,
  kHermes,   ///< JSON in <tool_call>, as Qwen does: hermes_calls.h
  kGlm,      ///< names and values in tags: glm_calls.h
  kHarmony,  ///< gpt-oss' channels: harmony.h
  kLlama,    ///< the answer is a JSON object: json_calls.h
  kList,     ///< the answer is a JSON list of calls: what a grammar can force on any model
};

/// What a parser has to know of the tools of a request: each one's name, with its arguments that
/// are texts by their schema. Some models write texts without quotes.
using ToolSketch = std::map<std::string, std::set<std::string>, std::less<>>;

/// Told by the text of the chat template.
ToolStyle tool_style_of(std::string_view chat_template);

/// The tags that calls are told by.
std::span<const std::string_view> tool_tags(ToolStyle style);

/// A tag that never stands in a thought, but that a model may write without ending it; "": none.
std::string_view calls_begin(ToolStyle style);

/// What Anthropic's Messages and OpenAI's Responses take; OpenAI's chats would take half of it.
inline constexpr std::size_t kToolNameBytesMax = 128;
inline constexpr const char* kToolNameForm = "1 to 128 of a-z, A-Z, 0-9, _ and -";
/// Whether a name is that.
bool is_tool_name(std::string_view name);

/// Of a function that was called in a conversation, which may have begun with another server.
inline constexpr const char* kCalledNameForm = "1 to 256 of a-z, A-Z, 0-9, _, -, ., : and /";
bool is_called_name(std::string_view name);

}  // namespace troupe
