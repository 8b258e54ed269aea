#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "model/chat/answer_parser.h"
#include "model/chat/text_arguments.h"
#include "model/chat/tool_grammar.h"
#include "model/grammar/grammar_writer.h"

namespace {

using Json = nlohmann::json;

constexpr const char* kTool = "f";

troupe::ToolStyle style_of(const Json& order) {
  return static_cast<troupe::ToolStyle>(order["style"].get<int>());
}

/// gpt-oss' calls are told by its channels.
troupe::ReasoningStart reasoning_of(const Json& order) {
  const bool channels = style_of(order) == troupe::ToolStyle::kHarmony;
  return {channels ? troupe::ReasoningStyle::kHarmony : troupe::ReasoningStyle::kNone};
}

/// Calls of one tool, and what is read of answers that were made by their grammar.
troupe::Result<std::string> calls_grammar(const Json& order) {
  troupe::CallsWanted wanted;
  wanted.style = style_of(order);
  wanted.reasoning = reasoning_of(order);
  wanted.tools = {{kTool, order["parameters"].get<std::string>()}};
  wanted.several = false;
  return troupe::write_tool_grammar(wanted);
}

Json read_calls(const Json& order) {
  const auto texts = troupe::text_arguments(order["parameters"].get<std::string>());
  Json out = Json::array();
  for (const Json& text : order["read"]) {
    const auto parser =
        troupe::make_answer_parser({reasoning_of(order), style_of(order), {{kTool, texts}}});
    Json one{{"content", ""}, {"arguments", Json::array()}};
    for (const auto& delta : {parser->feed(text.get<std::string>()), parser->finish()}) {
      one["content"] = one["content"].get<std::string>() + delta.content;
      for (const auto& call : delta.calls) {
        if (!call.name.empty()) one["arguments"].push_back("");
        auto& arguments = one["arguments"].back();
        arguments = arguments.get<std::string>() + call.arguments;
      }
    }
    out.push_back(std::move(one));
  }
  return out;
}

troupe::Result<std::string> written(const Json& order) {
  troupe::GrammarWriter writer;
  troupe::Result<std::string> root = std::string();
  if (order.contains("style")) return calls_grammar(order);
  if (order.contains("schema"))
    root = writer.json_schema(order["schema"].get<std::string>());
  else if (order.contains("regex"))
    root = writer.regex(order["regex"].get<std::string>());
  else if (order.contains("choice"))
    root = writer.choice(order["choice"].get<std::vector<std::string>>());
  else if (order.contains("object"))
    root = writer.json_object();
  else
    root = writer.json_value();
  if (!root) return root.error();
  return std::move(writer).finish(*root);
}

}  // namespace

/// Each line of the input is {"schema"}, {"regex"}, {"choice"}, {"object"}, {"value"} or calls'
/// {"style", "parameters"}, each of the output {"grammar", "ms"} or {"error", "ms"}; or
/// {"style", "parameters", "read": answers} and {"calls"}.
int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const Json order = Json::parse(line);
    if (order.contains("read")) {
      std::cout << Json{{"calls", read_calls(order)}}.dump() << std::endl;
      continue;
    }
    const auto begin = std::chrono::steady_clock::now();
    const auto grammar = written(order);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    Json answer{{"ms", took.count()}};
    answer[grammar ? "grammar" : "error"] = grammar ? *grammar : grammar.error().message;
    std::cout << answer.dump(-1, ' ', true, Json::error_handler_t::replace) << std::endl;
  }
}
