#include "model/chat/tool_style.h"

#include <algorithm>
#include <array>

#include "model/chat/glm_calls.h"
#include "model/chat/harmony.h"
#include "model/chat/hermes_calls.h"
#include "model/chat/json_calls.h"
#include "model/chat/tagged_calls.h"

namespace troupe {

ToolStyle tool_style_of(std::string_view chat_template) {
  const auto has = [&](std::string_view text) {
    return chat_template.find(text) != std::string_view::npos;
  };
  if (has("<|tool_calls_section_begin|>") || has("<|im_system|>tool_declare"))
    return ToolStyle::kKimi;
  if (has("<｜tool▁calls▁begin｜>"))
    return has("```json") ? ToolStyle::kDeepSeekV3 : ToolStyle::kDeepSeekV31;
  if (has("<|channel|>")) return ToolStyle::kHarmony;
  if (has("<arg_key>")) return ToolStyle::kGlm;
  // Qwen3-Coder and others write XML between these tags.
  if (has("<tool_call>")) return has("<function=") ? ToolStyle::kNone : ToolStyle::kHermes;
  if (has("<|start_header_id|>") && has("\"parameters\": ")) return ToolStyle::kLlama;
  return ToolStyle::kNone;
}

std::span<const std::string_view> tool_tags(ToolStyle style) {
  switch (style) {
    case ToolStyle::kNone:
    case ToolStyle::kList:
      return {};
    case ToolStyle::kDeepSeekV3:
    case ToolStyle::kDeepSeekV31:
      return kDeepSeekTags;
    case ToolStyle::kKimi:
      return kKimiTags;
    case ToolStyle::kHermes:
      return HermesCalls::kTags;
    case ToolStyle::kGlm:
      return GlmCalls::kTags;
    case ToolStyle::kHarmony:
      return HarmonyParser::kTags;
    case ToolStyle::kLlama:
      return JsonCalls::kTags;
  }
  return {};
}

std::string_view calls_begin(ToolStyle style) {
  switch (style) {
    case ToolStyle::kDeepSeekV3:
    case ToolStyle::kDeepSeekV31:
    case ToolStyle::kKimi:
      return tool_tags(style).front();
    default:
      return {};
  }
}

bool is_tool_name(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  };
  return !name.empty() && name.size() <= kToolNameBytesMax && std::ranges::all_of(name, fits);
}

bool is_called_name(std::string_view name) {
  constexpr std::size_t kBytesMax = 256;
  constexpr std::string_view kMore = ".:/";
  const auto fits = [&](char c) { return is_tool_name({&c, 1}) || kMore.find(c) != kMore.npos; };
  return !name.empty() && name.size() <= kBytesMax && std::ranges::all_of(name, fits);
}

}  // namespace troupe
