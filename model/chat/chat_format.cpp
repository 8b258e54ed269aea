#include "model/chat/chat_format.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <vector>

#include "model/json_reader.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

constexpr std::string_view kUser = "<｜User｜>";
constexpr std::string_view kAssistant = "<｜Assistant｜>";
constexpr std::string_view kEndOfSentence = "<｜end▁of▁sentence｜>";
constexpr std::string_view kCloseThink = "</think>";
constexpr std::string_view kSupported =
    "supported are those of DeepSeek-V2, DeepSeek-V2.5, DeepSeek-V3, DeepSeek-V3-0324, DeepSeek-R1 "
    "and DeepSeek-R1-0528";

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// The template's code without white space, and its string literals with theirs: the published
/// templates are formatted in several ways.
struct Outline {
  std::string code;                   // Literals are kept as their index in quotes.
  std::vector<std::string> literals;  // with \n, \t, \\ and quotes resolved

  explicit Outline(std::string_view text) {
    bool in_tag = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      const std::string_view two = text.substr(i, 2);
      if (!in_tag && two == "{#") {  // a comment
        const std::size_t end = text.find("#}", i + 2);
        if (end == std::string_view::npos) break;
        i = end + 1;
        continue;
      }
      if (two == "{{" || two == "{%") in_tag = true;
      if (two == "}}" || two == "%}") in_tag = false;
      if (in_tag && (c == '\'' || c == '"')) {
        code += "'" + std::to_string(literals.size()) + "'";
        i = read_literal(text, i);
      } else if (c != '\'' && std::string_view(" \t\r\n").find(c) == std::string_view::npos) {
        code += c;
      }
    }
  }

  /// The code with its literals put back, so that it can be searched.
  std::string flat() const {
    std::string out;
    for (std::size_t i = 0; i < code.size(); ++i) {
      if (code[i] != '\'') {
        out += code[i];
        continue;
      }
      const std::size_t end = code.find('\'', i + 1);
      out += "'" + literals[std::stoul(code.substr(i + 1, end - i - 1))] + "'";
      i = end;
    }
    return out;
  }

 private:
  std::size_t read_literal(std::string_view text, std::size_t quote) {
    std::string literal;
    std::size_t i = quote + 1;
    for (; i < text.size() && text[i] != text[quote]; ++i) {
      if (text[i] != '\\' || i + 1 == text.size()) {
        literal += text[i];
        continue;
      }
      const char escaped = text[++i];
      literal += escaped == 'n' ? '\n' : escaped == 't' ? '\t' : escaped;
    }
    literals.push_back(std::move(literal));
    return i;
  }
};

Error unknown_template(const std::string& why) {
  return invalid_argument("the checkpoint's chat template is not one that Troupe knows (" + why +
                          "); " + std::string(kSupported));
}

/// A token of tokenizer_config.json: a string or an object with a `content`; "" if there is none.
std::string token_text(const nlohmann::json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end()) return {};
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_object()) return {};
  const auto content = found->find("content");
  return content != found->end() && content->is_string() ? content->get<std::string>() : "";
}

/// `chat_template`: a string, or a list of {name, template}.
Result<std::string> template_text(const nlohmann::json& config, const std::string& file) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) {
    return not_found(file + " has no chat_template: this model cannot chat, only complete text");
  }
  if (found->is_string()) return found->get<std::string>();
  if (found->is_array()) {
    for (const nlohmann::json& entry : *found) {
      if (!entry.is_object() || entry.value("name", nlohmann::json()) != "default") continue;
      const nlohmann::json text = entry.value("template", nlohmann::json());
      if (text.is_string()) return text.get<std::string>();
    }
    return corrupt(file + ": chat_template has no template named \"default\"");
  }
  return corrupt(file + ": chat_template should be a string or a list of named templates");
}

}  // namespace

Result<ChatFormat> ChatFormat::detect(std::string_view chat_template, std::string bos_token,
                                      std::string eos_token) {
  const Outline outline(chat_template);
  const std::string text = outline.flat();
  ChatFormat format;
  format.bos_token_ = std::move(bos_token);
  format.eos_token_ = std::move(eos_token);
  if (has(text, "'User: '") && has(text, "'Assistant: '") && has(text, "'Assistant:'")) {
    format.family_ = Family::kDeepSeekV2;
    format.system_messages_ = SystemMessages::kInPlace;
    if (format.eos_token_.empty()) {
      return corrupt("tokenizer_config.json should name the eos_token that its chat template uses");
    }
    return format;
  }
  if (!has(text, kUser) || !has(text, kAssistant) || !has(text, kEndOfSentence)) {
    return unknown_template("it has no <｜User｜>, <｜Assistant｜> and <｜end▁of▁sentence｜>");
  }
  // V3.1 and later choose between thinking and not by a variable of the request.
  for (std::string_view variable : {"thinking", "reasoning_effort"}) {
    if (has(outline.code, variable)) {
      return unknown_template("it depends on the variable " + std::string(variable));
    }
  }
  format.strips_thoughts_ = has(text, "split('</think>')[-1]");
  format.assistant_after_user_ = has(text, "+'" + std::string(kAssistant) + "'}}");
  for (const std::string& literal : outline.literals) {
    if (!literal.starts_with(kAssistant)) continue;
    const std::string_view after = std::string_view(literal).substr(kAssistant.size());
    if (after.starts_with("<think>")) format.think_opening_ = after;
    if (after.starts_with(kCloseThink)) return unknown_template("it closes the think block itself");
  }
  const bool reasons = format.strips_thoughts_ || !format.think_opening_.empty();
  format.family_ = reasons ? Family::kDeepSeekR1 : Family::kDeepSeekV3;
  if (has(text, "system_prompt+'\n\n'+") || has(text, "system+'\n\n'+")) {
    format.system_messages_ = SystemMessages::kBlankLineBetween;
  } else if (has(text, "=ns.system_prompt+message") || has(text, "=ns.system+m")) {
    format.system_messages_ = SystemMessages::kConcatenated;
  }
  return format;
}

Result<ChatFormat> ChatFormat::load(const std::filesystem::path& dir) {
  const std::string config_path = (dir / "tokenizer_config.json").string();
  nlohmann::json config = nlohmann::json::object();
  Result<std::string> config_text = read_text_file(config_path, limits::kConfigBytesMax);
  if (!config_text && config_text.error().code != ErrorCode::kNotFound) return config_text.error();
  if (config_text) {
    Result<nlohmann::json> parsed = parse_json(*config_text, config_path);
    if (!parsed) return parsed.error();
    if (!parsed->is_object()) return corrupt(config_path + " should be a JSON object");
    config = std::move(*parsed);
  }
  Result<std::string> text =
      read_text_file((dir / "chat_template.jinja").string(), limits::kConfigBytesMax);
  if (!text && text.error().code != ErrorCode::kNotFound) return text.error();
  if (!text) text = template_text(config, config_path);
  if (!text) return text.error();
  return detect(*text, token_text(config, "bos_token"), token_text(config, "eos_token"));
}

Result<std::string> ChatFormat::render(std::span<const ChatMessage> messages,
                                       bool add_generation_prompt) const {
  if (messages.empty()) return invalid_argument("a chat needs at least one message");
  constexpr std::array<std::string_view, 3> kRoles = {"system", "user", "assistant"};
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (std::find(kRoles.begin(), kRoles.end(), messages[i].role) != kRoles.end()) continue;
    return invalid_argument("messages[" + std::to_string(i) + "].role is \"" + messages[i].role +
                            "\", but this model's chat format takes system, user and assistant");
  }
  return family_ == Family::kDeepSeekV2 ? render_v2(messages, add_generation_prompt)
                                        : render_v3(messages, add_generation_prompt);
}

std::string ChatFormat::render_v2(std::span<const ChatMessage> messages,
                                  bool add_generation_prompt) const {
  std::string text = bos_token_;
  for (const ChatMessage& message : messages) {
    if (message.role == "user") {
      text += "User: " + message.content + "\n\n";
    } else if (message.role == "assistant") {
      text += "Assistant: " + message.content + eos_token_;
    } else {
      text += message.content + "\n\n";
    }
  }
  if (add_generation_prompt) text += "Assistant:";
  return text;
}

std::string ChatFormat::render_v3(std::span<const ChatMessage> messages,
                                  bool add_generation_prompt) const {
  std::string system;
  bool first_system = true;
  for (const ChatMessage& message : messages) {
    if (message.role != "system") continue;
    if (system_messages_ == SystemMessages::kLast) system.clear();
    if (system_messages_ == SystemMessages::kBlankLineBetween && !first_system) system += "\n\n";
    system += message.content;
    first_system = false;
  }
  std::string text = bos_token_ + system;
  bool user_was_last = false;  // Of the turns; system messages have gone to the front.
  for (const ChatMessage& message : messages) {
    if (message.role == "system") continue;
    if (message.role == "user") {
      text.append(kUser).append(message.content);
      if (assistant_after_user_) text += kAssistant;
      user_was_last = true;
      continue;
    }
    if (!assistant_after_user_) text += kAssistant;
    const std::size_t close =
        strips_thoughts_ ? message.content.rfind(kCloseThink) : std::string::npos;
    text += close == std::string::npos ? message.content
                                       : message.content.substr(close + kCloseThink.size());
    text += kEndOfSentence;
    user_was_last = false;
  }
  const bool already_open = assistant_after_user_ && user_was_last;
  if (add_generation_prompt && !already_open) text.append(kAssistant);
  if (add_generation_prompt) text += think_opening_;
  return text;
}

std::string_view ChatFormat::name() const {
  switch (family_) {
    case Family::kDeepSeekV2:
      return "deepseek-v2";
    case Family::kDeepSeekV3:
      return "deepseek-v3";
    case Family::kDeepSeekR1:
      return "deepseek-r1";
  }
  return "unknown";
}

}  // namespace troupe
