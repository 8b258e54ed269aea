#pragma once

#include <array>
#include <string>
#include <string_view>

#include "model/chat/call_object.h"
#include "model/chat/call_parser.h"
#include "model/chat/looked_through.h"

namespace troupe {

/// Answers that are JSON calls from their beginning, of tools that there are; anything else is
/// content. As Llama 3 writes them and vLLM's parser llama3_json reads them, or as the list that
/// vLLM forces on models of which it knows no better:
///
///     {"name": "f", "parameters": {...}}; ...     also after <|python_tag|>
///     [{"name": "f", "parameters": {...}}, ...]
class JsonCalls final : public CallParser {
 public:
  static constexpr std::array<std::string_view, 1> kTags = {"<|python_tag|>"};

  JsonCalls(bool list, ToolSketch sketch) : list_(list), sketch_(std::move(sketch)) {}
  AnswerDelta feed(std::string_view text) override;
  AnswerDelta finish() override;

 private:
  enum class State : unsigned char { kStart, kObject, kBetween, kContent };

  std::size_t undecided() const override { return raw_.size() + held_.size(); }
  bool take_start();
  bool take_object(AnswerDelta& delta);
  bool take_between();

  const bool list_;
  const ToolSketch sketch_;
  State state_ = State::kStart;
  CallObject object_;
  bool begun_ = false;  // The call was told.
  std::string held_;    // Not decided yet.
  LookedThrough blanks_;  // That the answer begins with.
  std::string raw_;     // What was read and has not become a call.
};

}  // namespace troupe
