#include "model/chat/reasoning_parser.h"

#include <algorithm>

#include "model/chat/reasoning_harmony.h"
#include "model/chat/reasoning_think.h"

namespace troupe {

std::unique_ptr<ReasoningParser> make_reasoning_parser(ReasoningStart start) {
  switch (start.style) {
    case ReasoningStyle::kNone:
      return nullptr;
    case ReasoningStyle::kThink:
      return std::make_unique<ThinkParser>(start.inside);
    case ReasoningStyle::kHarmony:
      return std::make_unique<HarmonyParser>();
  }
  return nullptr;
}

std::span<const std::string_view> reasoning_tags(ReasoningStyle style) {
  switch (style) {
    case ReasoningStyle::kNone:
      return {};
    case ReasoningStyle::kThink:
      return ThinkParser::kTags;
    case ReasoningStyle::kHarmony:
      return HarmonyParser::kTags;
  }
  return {};
}

std::size_t partial_tag(std::string_view text, std::string_view tag) {
  for (std::size_t n = std::min(text.size(), tag.size() - 1); n > 0; --n) {
    if (text.ends_with(tag.substr(0, n))) return n;
  }
  return 0;
}

}  // namespace troupe
