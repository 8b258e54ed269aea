#include "model/chat/chat_format.h"

#include <algorithm>
#include <array>

#include "model/chat/reasoning_think.h"
#include "model/jinja/globals.h"
#include "model/jinja/json.h"
#include "model/jinja/python.h"
#include "model/tokenizer/utf8.h"

namespace troupe {
namespace {

using jinja::Dict;
using jinja::Value;

/// What this program gives a template itself.
constexpr std::array<std::string_view, 4> kOwnVariables = {"messages", "tools", "documents",
                                                           "add_generation_prompt"};

template <class Names>
bool is_in(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Adds the request's own variables.
Status add_kwargs(std::string_view json, Dict& variables) {
  if (json.empty()) return {};
  const Result<Value> kwargs = jinja::value_from_json(json, "chat_template_kwargs: it");
  if (!kwargs) return kwargs.error();
  if (kwargs->dict() == nullptr)
    return invalid_argument("chat_template_kwargs: it must be an object");
  for (const auto& [name, value] : kwargs->dict()->items()) {
    // What is set already are the model's special tokens.
    if (is_in(kOwnVariables, *name.text()) || variables.named(*name.text()) != nullptr ||
        !jinja::global_function(*name.text()).is_undefined())
      return invalid_argument("chat_template_kwargs: '" + *name.text() + "' cannot be set");
    variables.set(*name.text(), value);
  }
  return {};
}

ReasoningStyle style_of(std::string_view source) {
  if (source.find("<|channel|>") != std::string_view::npos) return ReasoningStyle::kHarmony;
  for (const std::string_view tag : answer_tags(ReasoningStyle::kThink, ToolStyle::kNone))
    if (source.find(tag) != std::string_view::npos) return ReasoningStyle::kThink;
  return ReasoningStyle::kNone;
}

bool ends_with_tag(std::string_view prompt, std::string_view tag) {
  return prompt.substr(0, prompt.find_last_not_of(" \t\r\n") + 1).ends_with(tag);
}

}  // namespace

Result<ChatFormat> ChatFormat::make(const ChatTemplateFile& file) {
  auto text = jinja::Template::parse(file.text);
  if (!text) return text.error();
  std::optional<jinja::Template> tool_use;
  if (!file.tool_use.empty()) {
    auto parsed = jinja::Template::parse(file.tool_use);
    if (!parsed) return parsed.error();
    tool_use = std::move(*parsed);
  }
  Dict tokens;
  for (const auto& [name, token] : file.tokens) tokens.set(name, utf8::repair(token));
  ChatFormat format(std::move(*text), std::move(tool_use), std::move(tokens));
  format.style_ = style_of(file.text);
  format.learn_message_form();
  format.learn_tools(file.tool_use.empty() ? file.text : file.tool_use);
  return format;
}

Result<ChatFormat> ChatFormat::load(const std::filesystem::path& model) {
  const auto file = load_chat_template(model);
  if (!file) return file.error();
  return make(*file);
}

Result<std::string> ChatFormat::render(std::span<const ChatMessage> messages,
                                       const ChatOptions& options) const {
  if (options.continue_final_message) return render_continued(messages, options);
  Dict variables = tokens_;
  if (const Status status = add_kwargs(options.template_kwargs, variables); !status)
    return status.error();
  Value tools = Value::None{};
  if (!options.tools.empty()) {
    auto parsed = jinja::value_from_json(options.tools, "tools");
    if (!parsed) return parsed.error();
    if (jinja::truthy(*parsed)) tools = std::move(*parsed);
  }
  const bool with_tools = !tools.is_none();
  std::vector<ChatMessage> told;
  if (with_tools && tells_tools_) {
    auto list = with_tools_told(messages, tools);
    if (!list) return list.error();
    told = std::move(*list);
    messages = told;
  }
  auto list = messages_value(messages);
  if (!list) return list.error();
  variables.set("messages", std::move(*list));
  variables.set("tools", std::move(tools));
  variables.set("documents", Value::None{});
  variables.set("add_generation_prompt", options.add_generation_prompt);
  const jinja::Template& used = with_tools && tool_use_ ? *tool_use_ : text_;
  return used.render(variables, options.now_unix_s);
}

ReasoningStart ChatFormat::reasoning(std::span<const ChatMessage> messages,
                                     const ChatOptions& options) const {
  if (style_ == ReasoningStyle::kNone) return {};
  if (style_ == ReasoningStyle::kHarmony && !options.continue_final_message) return {style_};
  const auto prompt = render(messages, options);
  if (!prompt) return {style_};  // The request itself will say why.
  if (options.continue_final_message) return continued(*prompt, messages.back());
  return {style_, ends_with_tag(*prompt, ThinkParser::kTags[0]),
          ends_with_tag(*prompt, ThinkParser::kTags[1])};
}

/// The tags of the message count, then those that the template has put before it.
ReasoningStart ChatFormat::continued(std::string_view prompt, const ChatMessage& last) const {
  const auto& [open_tag, close_tag] = ThinkParser::kTags;
  const std::string content = content_of(last);
  bool inside = !last.reasoning_content.empty() && content.empty();
  const std::size_t open = content.rfind(open_tag), close = content.rfind(close_tag);
  if (open != std::string::npos) {
    inside = close == std::string::npos || close < open;
  } else if (close == std::string::npos && style_ == ReasoningStyle::kThink) {
    if (prompt.ends_with(content)) prompt.remove_suffix(content.size());
    inside = inside || ends_with_tag(prompt, open_tag);
  }
  return {style_, inside, !inside};
}

}  // namespace troupe
