#include "model/chat/answer_parser.h"

#include <algorithm>

#include "model/chat/glm_calls.h"
#include "model/chat/harmony.h"
#include "model/chat/hermes_calls.h"
#include "model/chat/json_calls.h"
#include "model/chat/reasoning_think.h"
#include "model/chat/tagged_calls.h"

namespace troupe {
namespace {

/// Null for what has no parser of its own.
std::unique_ptr<AnswerParser> make_call_parser(const AnswerForm& form) {
  switch (form.tools) {
    case ToolStyle::kNone:
    case ToolStyle::kHarmony:
      return nullptr;
    case ToolStyle::kDeepSeekV3:
    case ToolStyle::kDeepSeekV31:
      return make_deepseek_calls(form.tools == ToolStyle::kDeepSeekV31);
    case ToolStyle::kKimi:
      return make_kimi_calls();
    case ToolStyle::kHermes:
      return std::make_unique<HermesCalls>();
    case ToolStyle::kGlm:
      return std::make_unique<GlmCalls>(form.sketch);
    case ToolStyle::kLlama:
    case ToolStyle::kList:
      return std::make_unique<JsonCalls>(form.tools == ToolStyle::kList, form.sketch);
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<AnswerParser> make_answer_parser(const AnswerForm& form) {
  switch (form.reasoning.style) {
    case ReasoningStyle::kNone:
      break;
    case ReasoningStyle::kThink:
      return std::make_unique<ThinkParser>(form.reasoning.inside, make_call_parser(form),
                                           calls_begin(form.tools));
    case ReasoningStyle::kHarmony:
      return std::make_unique<HarmonyParser>(form.tools == ToolStyle::kHarmony);
  }
  return make_call_parser(form);
}

std::vector<std::string_view> answer_tags(ReasoningStyle thoughts, ToolStyle tools) {
  std::vector<std::string_view> tags(tool_tags(tools).begin(), tool_tags(tools).end());
  if (thoughts == ReasoningStyle::kThink)
    tags.insert(tags.end(), ThinkParser::kTags.begin(), ThinkParser::kTags.end());
  if (thoughts == ReasoningStyle::kHarmony && tools != ToolStyle::kHarmony)
    tags.insert(tags.end(), HarmonyParser::kTags.begin(), HarmonyParser::kTags.end());
  return tags;
}

std::size_t partial_tag(std::string_view text, std::string_view tag) {
  for (std::size_t n = std::min(text.size(), tag.size() - 1); n > 0; --n) {
    if (text.ends_with(tag.substr(0, n))) return n;
  }
  return 0;
}

}  // namespace troupe
