// Of ChatFormat: a conversation whose last message goes on.
#include <string>
#include <utility>
#include <vector>

#include "model/chat/chat_format.h"
#include "model/chat/reasoning_think.h"
#include "model/tokenizer/utf8.h"

namespace troupe {
namespace {

/// Marks the end of a message. A template that trims messages takes its space away.
constexpr std::string_view kMark = "THE_LAST_MESSAGE_GOES_ON_HERE ";
constexpr std::string_view kBareMark = kMark.substr(0, kMark.size() - 1);

/// White space at the end of a text that has something else.
std::string_view space_behind(std::string_view text) {
  const std::size_t last = text.find_last_not_of(" \t\r\n");
  return last == std::string_view::npos ? std::string_view() : text.substr(last + 1);
}

}  // namespace

/// As transformers does it: the message is rendered with a mark at its end, and the text is cut
/// there.
Result<std::string> ChatFormat::render_continued(std::span<const ChatMessage> messages,
                                                 ChatOptions options) const {
  options.continue_final_message = false;
  if (messages.empty() || messages.back().role != "assistant")
    return invalid_argument("messages: the last one must be an assistant's to be continued.");
  if (!messages.back().tool_calls.empty())
    return invalid_argument("messages: the last one calls tools, and cannot be continued.");
  if (!messages.back().reasoning_content.empty()) return render_thought(messages, options);
  options.add_generation_prompt = false;
  std::vector<ChatMessage> marked(messages.begin(), messages.end());
  last_text(marked.back()) += kMark;
  auto text = render(marked, options);
  if (!text) return text;
  const std::size_t end = text->rfind(kBareMark);
  if (end == std::string::npos)
    return invalid_argument(
        "messages: the last one cannot be continued: this model's chat template does not show it.");
  const bool trimmed = !std::string_view(*text).substr(end).starts_with(kMark);
  text->resize(end);
  const std::string content = content_of(messages.back());
  const std::string_view space = space_behind(content);
  if (trimmed && text->ends_with(space)) text->resize(end - space.size());
  return text;
}

/// Templates leave thoughts out, so it is written as the model writes it.
Result<std::string> ChatFormat::render_thought(std::span<const ChatMessage> messages,
                                               ChatOptions options) const {
  options.add_generation_prompt = true;
  const auto before = messages.first(messages.size() - 1);
  const ReasoningStart start = reasoning(before, options);
  if (start.style != ReasoningStyle::kThink)
    return invalid_argument(
        "messages: reasoning_content of the last one cannot be continued: this model has no block "
        "of thoughts.");
  if (start.over)
    return invalid_argument(
        "messages: reasoning_content of the last one cannot be continued: thinking is turned off.");
  auto text = render(before, options);
  if (!text) return text;
  const auto& [open, close] = ThinkParser::kTags;
  if (!start.inside) *text += open;
  *text += utf8::repair(messages.back().reasoning_content);
  const std::string content = content_of(messages.back());
  if (content.empty()) return text;
  *text += close;
  *text += utf8::repair(content);
  return text;
}

}  // namespace troupe
