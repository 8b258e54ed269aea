#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/chat/answer_parser.h"
#include "model/chat/chat_template_file.h"
#include "model/jinja/template.h"
#include "runtime/generation.h"
#include "runtime/result.h"

namespace troupe {

/// What a conversation is rendered with, beside its messages. Both texts are JSON; empty: none.
struct ChatOptions {
  bool add_generation_prompt = true;
  bool continue_final_message = false;  ///< an assistant's; nothing is added behind it
  std::string_view tools;            ///< a list of tools, as OpenAI's API has it
  std::string_view template_kwargs;  ///< an object: variables of the template's own
  std::int64_t now_unix_s = 0;       ///< for templates that tell the date
};

/// How a model wants a conversation written: the checkpoint's chat template (model/jinja), and what
/// it shows of how the model thinks.
class ChatFormat {
 public:
  /// A template that cannot be read is kInvalidArgument.
  static Result<ChatFormat> make(const ChatTemplateFile& file);
  /// The same from a checkpoint. kNotFound if it has none: it is a base model that cannot chat.
  static Result<ChatFormat> load(const std::filesystem::path& model);

  /// The prompt's text, BOS included: encode it with add_special_tokens off. What the template
  /// refuses is kInvalidArgument, in its own words.
  Result<std::string> render(std::span<const ChatMessage> messages,
                             const ChatOptions& options) const;

  /// How the answer to this conversation holds thoughts: what the end of its prompt says, which
  /// may depend on variables, tools and messages.
  ReasoningStart reasoning(std::span<const ChatMessage> messages,
                           const ChatOptions& options = {}) const;
  ReasoningStyle reasoning_style() const { return style_; }
  /// How answers call tools. kNone also where prompts could not tell the model of them.
  ToolStyle tool_style() const { return tool_style_; }

 private:
  /// What templates expect differently of messages.
  struct MessageForm {
    bool arguments_are_text = false;  ///< of calls; or else an object
    bool content_is_none = false;     ///< beside calls, if there is none; or else an empty text
    bool knows_developer = true;      ///< or else that is the system
    std::set<std::string, std::less<>> part_roles = {};  ///< whose content may be a list of parts
  };

  ChatFormat(jinja::Template text, std::optional<jinja::Template> tool_use, jinja::Dict tokens)
      : text_(std::move(text)), tool_use_(std::move(tool_use)), tokens_(std::move(tokens)) {}

  Result<std::string> render_continued(std::span<const ChatMessage> messages,
                                       ChatOptions options) const;
  Result<std::string> render_thought(std::span<const ChatMessage> messages,
                                     ChatOptions options) const;
  ReasoningStart continued(std::string_view prompt, const ChatMessage& last) const;
  Result<jinja::Value> messages_value(std::span<const ChatMessage> messages) const;
  Result<jinja::Value> message_value(const ChatMessage& from, const std::string& where) const;
  jinja::Value content_value(const ChatMessage& from) const;
  std::string_view role_of(const ChatMessage& message) const;
  void learn_tools(std::string_view source);
  void learn_message_form();
  void learn_call_form();
  bool takes_parts(std::string_view role) const;
  Result<std::vector<ChatMessage>> with_tools_told(std::span<const ChatMessage> messages,
                                                   const jinja::Value& tools) const;

  jinja::Template text_;
  std::optional<jinja::Template> tool_use_;
  jinja::Dict tokens_;
  std::optional<jinja::Template> tells_tools_;  // In the system message; none: text_ does.
  MessageForm form_;
  ToolStyle tool_style_ = ToolStyle::kNone;
  ReasoningStyle style_ = ReasoningStyle::kNone;
};

/// A message's content as one text: parts are lines of it.
std::string content_of(const ChatMessage& message);
/// The text that its content ends with.
std::string& last_text(ChatMessage& message);

}  // namespace troupe
