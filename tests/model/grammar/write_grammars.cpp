#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "model/grammar/grammar_writer.h"

namespace {

using Json = nlohmann::json;

troupe::Result<std::string> written(const Json& order) {
  troupe::GrammarWriter writer;
  troupe::Result<std::string> root = std::string();
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

/// Each line of the input is {"schema"}, {"regex"}, {"choice"}, {"object"} or {"value"}, each of
/// the output {"grammar", "ms"} or {"error", "ms"}.
int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const Json order = Json::parse(line);
    const auto begin = std::chrono::steady_clock::now();
    const auto grammar = written(order);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    Json answer{{"ms", took.count()}};
    answer[grammar ? "grammar" : "error"] = grammar ? *grammar : grammar.error().message;
    std::cout << answer.dump(-1, ' ', true, Json::error_handler_t::replace) << std::endl;
  }
}
