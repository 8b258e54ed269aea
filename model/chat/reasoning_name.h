#pragma once

#include <string_view>

#include "model/chat/answer_parser.h"

namespace troupe {

/// As the status has it, for clients that tell thoughts from answers themselves.
constexpr std::string_view to_string(ReasoningStyle style) {
  return style == ReasoningStyle::kThink     ? "think"
         : style == ReasoningStyle::kHarmony ? "harmony"
                                             : "none";
}

/// kNone for a word that is none of them.
constexpr ReasoningStyle parse_reasoning_style(std::string_view word) {
  for (const auto style : {ReasoningStyle::kThink, ReasoningStyle::kHarmony})
    if (word == to_string(style)) return style;
  return ReasoningStyle::kNone;
}

}  // namespace troupe
