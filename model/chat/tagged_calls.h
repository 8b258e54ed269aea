#pragma once

#include <array>
#include <string>
#include <string_view>

#include "model/chat/arguments_end.h"
#include "model/chat/call_parser.h"
#include "model/chat/json_extent.h"

namespace troupe {

/// The tags of a model that writes calls as sections, special tokens all:
///
///     section_begin [ call_begin HEADER arguments_begin ARGUMENTS call_end ]* section_end
struct CallTags {
  std::string_view section_begin, section_end, call_begin, call_end, arguments_begin;
};

/// Calls in sections. Tags end whatever came before them, so that a call that the model did not
/// finish does not take the next ones along; but in the arguments' texts they are text.
///
///     text ──► section ──► header ──► arguments ──┐
///       ▲         │ ▲                             │
///       └─────────┘ └─────────────────────────────┘
class TaggedCalls : public CallParser {
 public:
  AnswerDelta feed(std::string_view text) final;
  AnswerDelta finish() final;

 protected:
  explicit TaggedCalls(const CallTags& tags) : tags_(tags) {}
  struct Head {
    std::string name, id;
  };
  /// What stands between call_begin and arguments_begin, without white space at its ends. No name:
  /// it is no call.
  virtual Head read_head(std::string_view header) const = 0;

 private:
  enum class State : unsigned char { kText, kSection, kHeader, kArguments };
  enum class Part : unsigned char { kBefore, kJson, kRaw, kAfter, kStray };  // Of the arguments.

  std::size_t undecided() const final { return raw_.size() + held_.size(); }
  void take(AnswerDelta& delta, bool last);
  bool take_text(AnswerDelta& delta);
  bool take_section(AnswerDelta& delta);
  bool take_header(AnswerDelta& delta);
  bool take_arguments(AnswerDelta& delta, bool last);
  void add_arguments(AnswerDelta& delta, std::string_view text);
  void no_call(AnswerDelta& delta);
  bool skip(std::string_view tag);

  const CallTags tags_;
  State state_ = State::kText;
  Part part_ = Part::kBefore;
  JsonExtent extent_;
  ArgumentsEnd end_;
  std::string held_;  // Not decided yet.
  std::string raw_;   // Tags that were read, but of which no call has come.
};

inline constexpr std::array<std::string_view, 5> kDeepSeekTags = {
    "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"};
inline constexpr std::array<std::string_view, 5> kKimiTags = {
    "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>",
    "<|tool_call_end|>", "<|tool_call_argument_begin|>"};

std::unique_ptr<AnswerParser> make_deepseek_calls(bool v31);
std::unique_ptr<AnswerParser> make_kimi_calls();

}  // namespace troupe
