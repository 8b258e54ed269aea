#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tests/actors/gateway/stand.h"

namespace troupe::testing {

// A chat with two tools, and a model that calls.
using nlohmann::json;

inline const json kWeather = {
    {"type", "function"},
    {"function",
     {{"name", "get_weather"},
      {"parameters", {{"type", "object"}, {"properties", {{"city", {{"type", "string"}}}}}}}}}};
inline const json kNow = {{"type", "function"}, {"function", {{"name", "now"}}}};

inline json asked(json more = json::object()) {
  json body = {{"messages", {{{"role", "user"}, {"content", "x"}}}}, {"tools", {kWeather, kNow}}};
  body.update(more);
  return body;
}

inline std::string called_text() {
  return "I look.\n<tool_call>\n"
         R"({"name": "get_weather", "arguments": {"city": "Bern"}})"
         "\n</tool_call>\n<tool_call>\n"
         R"({"name": "now", "arguments": {}})"
         "\n</tool_call>";
}

inline ByteModel model_that_calls(ToolStyle style = ToolStyle::kHermes) {
  ByteModel model;
  model.tools = style;
  return model;
}

inline void say(Stand& stand, const std::string& text) {
  FakeService::Script script;
  script.text = text;
  stand.service.set(script);
}

}  // namespace troupe::testing
