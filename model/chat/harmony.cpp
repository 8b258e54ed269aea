#include "model/chat/harmony.h"

#include <algorithm>

namespace troupe {
namespace {

constexpr std::string_view kChannel = "<|channel|>";
constexpr std::string_view kMessage = "<|message|>";
/// How an answer begins; else it has no headers.
constexpr std::array<std::string_view, 4> kHeaderBegins = {kChannel, kMessage, "<|start|>",
                                                           " to=functions."};
/// Headers are short; more without <|message|> is a text that was cut off.
constexpr std::size_t kHarmonyHeaderBytesMax = 4096;

bool begins_final(std::string_view header) {
  const std::size_t channel = header.rfind(kChannel);
  return channel != std::string_view::npos &&
         header.substr(channel + kChannel.size()).starts_with("final");
}

/// The function that the message goes to; empty: to none.
std::string_view receiver(std::string_view header) {
  constexpr std::string_view kTo = "to=functions.";
  const std::size_t at = header.find(kTo);
  if (at == std::string_view::npos) return {};
  header.remove_prefix(at + kTo.size());
  header = header.substr(0, header.find_first_of(" \t\r\n<"));
  return is_tool_name(header) ? header : std::string_view();
}

/// The first tag that ends a body; what may become one is not decided.
ArgumentsEnd::Found body_end(std::string_view text) {
  std::size_t end = text.size(), unsure = 0;
  for (const std::string_view tag : HarmonyParser::kBodyEnds) {
    unsure = std::max(unsure, partial_tag(text, tag));
    end = std::min(end, text.find(tag));
  }
  const bool ends = end < text.size();
  return {ends ? end : end - unsure, ends};
}

}  // namespace

/// True if the header ended: the body follows.
bool HarmonyParser::take_header(AnswerDelta& delta) {
  const std::size_t end = held_.find(kMessage);
  if (end == std::string::npos) {
    const std::size_t unsure = partial_tag(held_, kMessage);
    too_long_ = too_long_ || held_.size() - unsure > kHarmonyHeaderBytesMax;
    if (too_long_) held_.erase(0, held_.size() - unsure);
    return false;
  }
  too_long_ = too_long_ || end > kHarmonyHeaderBytesMax;
  const std::string_view header = std::string_view(held_).substr(0, too_long_ ? 0 : end);
  const std::string_view function = reads_calls_ ? receiver(header) : std::string_view();
  body_ = begins_final(header) ? Body::kContent : Body::kReasoning;
  if (!function.empty()) {
    begin_call(delta, std::string(function));
    body_ = Body::kCall;
    end_ = {};
  }
  empty_ = true;
  too_long_ = false;
  held_.erase(0, end + kMessage.size());
  state_ = State::kBody;
  return true;
}

/// True if the body ended: a header follows.
bool HarmonyParser::take_body(AnswerDelta& delta, bool last) {
  const ArgumentsEnd::Found found =
      body_ == Body::kCall ? end_.find(held_, kBodyEnds, last) : body_end(held_);
  add_body(delta, std::string_view(held_).substr(0, found.size));
  held_.erase(0, found.size);
  if (!found.ends) return false;
  const auto stands = [&](std::string_view tag) { return held_.starts_with(tag); };
  held_.erase(0, std::ranges::find_if(kBodyEnds, stands)->size());
  if (body_ == Body::kCall && empty_) arguments(delta, "{}");
  state_ = State::kHeader;
  return true;
}

void HarmonyParser::add_body(AnswerDelta& delta, std::string_view text) {
  if (!text.empty()) empty_ = false;
  switch (body_) {
    case Body::kContent:
      delta.content += text;
      break;
    case Body::kReasoning:
      delta.reasoning += text;
      break;
    case Body::kCall:
      arguments(delta, text);
      break;
  }
}

AnswerDelta HarmonyParser::feed(std::string_view text) {
  AnswerDelta delta;
  held_ += text;
  if (state_ == State::kStart && !held_.empty()) {
    const auto begins = [&](std::string_view tag) { return held_.starts_with(tag); };
    const auto may_begin = [&](std::string_view tag) { return tag.starts_with(held_); };
    if (std::ranges::any_of(kHeaderBegins, begins)) {
      state_ = State::kHeader;
    } else if (std::ranges::none_of(kHeaderBegins, may_begin)) {
      state_ = State::kBody;
    }
  }
  take(delta, false);
  return delta;
}

/// `last`: no more will come.
void HarmonyParser::take(AnswerDelta& delta, bool last) {
  while (state_ == State::kHeader ? take_header(delta)
                                  : state_ == State::kBody && take_body(delta, last)) {
  }
}

AnswerDelta HarmonyParser::finish() {
  AnswerDelta delta;
  take(delta, true);
  if (state_ != State::kHeader) add_body(delta, held_);
  held_.clear();
  return delta;
}

}  // namespace troupe
