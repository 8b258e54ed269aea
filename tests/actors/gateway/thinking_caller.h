#pragma once

#include <chrono>
#include <string>

#include "tests/actors/gateway/fakes.h"

namespace troupe::testing {

/// All that an answer can have: a thought, a text and two calls.
inline const std::string kThoughtTextAndCalls =
    "<think>Hm, so.</think>Let me see.<tool_call>\n"
    R"({"name": "f", "arguments": {"a": 1}})"
    "\n</tool_call>\n<tool_call>\n"
    R"({"name": "f", "arguments": {"a": 2}})"
    "\n</tool_call>";

/// A model that reads them.
inline ByteModel thinking_caller() {
  ByteModel model;
  model.tools = ToolStyle::kHermes;
  model.thinks = true;
  return model;
}

inline FakeService::Script script_of_all(std::chrono::microseconds tick = {}) {
  FakeService::Script script;
  script.text = kThoughtTextAndCalls;
  script.tick = tick;
  return script;
}

}  // namespace troupe::testing
