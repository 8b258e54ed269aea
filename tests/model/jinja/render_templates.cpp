#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "model/jinja/json.h"
#include "model/jinja/template.h"

namespace {

using Json = nlohmann::ordered_json;

troupe::Result<std::string> rendered(const Json& order) {
  const auto parsed = troupe::jinja::Template::parse(order.at("template").get<std::string>());
  if (!parsed) return parsed.error();
  const auto variables = troupe::jinja::value_from_json(order.at("variables").dump(), "variables");
  if (!variables) return variables.error();
  return parsed->render(*variables->dict(), order.value("now_unix_s", std::int64_t{0}));
}

}  // namespace

/// Each line of the input is {"template", "variables", "now_unix_s"}, each of the output
/// {"text"} or {"error"}.
int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto text = rendered(Json::parse(line));
    Json answer;
    if (text)
      answer["text"] = *text;
    else
      answer["error"] = text.error().message;
    std::cout << answer.dump() << std::endl;
  }
}
