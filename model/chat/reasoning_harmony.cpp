#include "model/chat/reasoning_harmony.h"

#include <algorithm>

namespace troupe {
namespace {

constexpr std::string_view kChannel = "<|channel|>";
constexpr std::string_view kMessage = "<|message|>";
/// What ends a body; <|start|> does where <|end|> was left out.
constexpr std::array<std::string_view, 4> kBodyEnds = {"<|end|>", "<|return|>", "<|call|>",
                                                       "<|start|>"};
/// Headers are short; more without <|message|> is a text that was cut off.
constexpr std::size_t kHarmonyHeaderBytesMax = 4096;

bool begins_final(std::string_view header) {
  const std::size_t channel = header.rfind(kChannel);
  return channel != std::string_view::npos &&
         header.substr(channel + kChannel.size()).starts_with("final");
}

}  // namespace

/// True if the header ended: the body follows.
bool HarmonyParser::take_header() {
  const std::size_t end = held_.find(kMessage);
  if (end == std::string::npos) {
    if (held_.size() > kHarmonyHeaderBytesMax) held_.erase(0, held_.size() - kMessage.size());
    return false;
  }
  final_ = begins_final(std::string_view(held_).substr(0, end));
  held_.erase(0, end + kMessage.size());
  state_ = State::kBody;
  return true;
}

/// True if the body ended: a header follows.
bool HarmonyParser::take_body(ReasoningDelta& delta) {
  std::size_t end = held_.size(), tag_size = 0, unsure = 0;
  for (const std::string_view tag : kBodyEnds) {
    unsure = std::max(unsure, partial_tag(held_, tag));
    const std::size_t at = held_.find(tag);
    if (at >= end) continue;
    end = at;
    tag_size = tag.size();
  }
  const bool ended = tag_size > 0;
  if (!ended) end -= unsure;
  body(delta) += held_.substr(0, end);
  held_.erase(0, end + tag_size);
  if (ended) state_ = State::kHeader;
  return ended;
}

ReasoningDelta HarmonyParser::feed(std::string_view text) {
  ReasoningDelta delta;
  held_ += text;
  if (state_ == State::kStart && !held_.empty()) {
    const auto may_be = [&](std::string_view tag) {
      return std::string_view(held_).starts_with(tag) || tag.starts_with(held_);
    };
    const bool tagged = may_be(kChannel) || may_be(kMessage) || may_be("<|start|>");
    state_ = tagged ? State::kHeader : State::kBody;
    if (tagged && std::string_view(held_).size() < 3) state_ = State::kStart;  // Undecided.
  }
  while (state_ == State::kHeader ? take_header() : state_ == State::kBody && take_body(delta)) {
  }
  return delta;
}

ReasoningDelta HarmonyParser::finish() {
  ReasoningDelta delta;
  if (state_ != State::kHeader) body(delta) = held_;
  held_.clear();
  return delta;
}

}  // namespace troupe
