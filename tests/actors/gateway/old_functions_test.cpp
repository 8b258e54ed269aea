#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "tests/actors/gateway/asked_tools.h"
#include "tests/actors/gateway/stand.h"

namespace troupe::testing {

TEST_CASE("an older client's functions are tools, and are called as it knows it") {
  Stand stand({}, model_that_calls());
  const auto body = [](json more) {
    json all = {{"messages", {{{"role", "user"}, {"content", "x"}}}},
                {"functions", {kWeather["function"], kNow["function"]}}};
    all.update(more);
    return all;
  };
  say(stand, called_text());
  const HttpResponse answer = stand.client().post("/v1/chat/completions", body(json::object()));
  const json choice = answer.json()["choices"][0];
  CHECK(choice["finish_reason"] == "function_call");
  CHECK(choice["message"] ==
        json({{"role", "assistant"},
              {"content", "I look."},
              {"function_call", {{"name", "get_weather"}, {"arguments", R"({"city": "Bern"})"}}}}));
  CHECK(json::parse(stand.service.seen().back().tools) == json({kWeather, kNow}));
  const std::string path = "/v1/requests/" + answer.headers.at("x-request-id");
  CHECK(stand.client().get(path).json()["choices"][0] == choice);

  std::string name, arguments, finish;
  const std::string stream =
      stand.client().post("/v1/chat/completions", body({{"stream", true}})).body;
  for (std::size_t at = 0; (at = stream.find("data: {", at)) != std::string::npos; ++at) {
    const json part =
        json::parse(stream.substr(at + 6, stream.find("\n\n", at) - at - 6))["choices"][0];
    CHECK_FALSE(part["delta"].contains("tool_calls"));
    const json called = part["delta"].value("function_call", json::object());
    name += called.value("name", "");
    arguments += called.value("arguments", "");
    if (part["finish_reason"].is_string()) finish = part["finish_reason"];
  }
  CHECK(name == "get_weather");
  CHECK(arguments == R"({"city": "Bern"})");
  CHECK(finish == "function_call");

  const auto seen = [&](const json& more) {
    REQUIRE(stand.client().post("/v1/chat/completions", body(more)).status == 200);
    return stand.service.seen().back();
  };
  const std::string grammar = seen({{"function_call", {{"name", "now"}}}}).grammar;
  CHECK(grammar.find("now") != std::string::npos);
  CHECK(grammar.find("get_weather") == std::string::npos);
  CHECK(seen({{"function_call", "auto"}}).grammar.empty());
  CHECK(seen({{"function_call", "none"}}).tools.empty());
}

TEST_CASE("errors of functions speak of functions") {
  Stand stand({}, model_that_calls());
  const auto refused = [&](json more) {
    json body = {{"messages", {{{"role", "user"}, {"content", "x"}}}}};
    body.update(more);
    const HttpResponse answer = stand.client().post("/v1/chat/completions", body);
    CHECK(answer.status == 400);
    const json error = answer.json()["error"];
    const std::string message = error["message"];
    CHECK_MESSAGE(message.find("tool") == std::string::npos, message);
    return std::pair(error["param"].get<std::string>(), message);
  };
  const auto with = [](const json& schema) {
    return json{{{"name", "f"}, {"parameters", {{"properties", {{"a", schema}}}}}}};
  };
  const json f = {{"name", "f"}};
  // One that no grammar can be made of.
  auto [param, message] = refused({{"functions", with({{"pattern", "("}})}, {"function_call", f}});
  CHECK(param == "functions");
  CHECK(message.starts_with("functions: f: "));
  std::tie(param, message) = refused({{"functions", with(3)}});
  CHECK(param == "functions");
  CHECK(message.starts_with("functions[0].parameters.properties.a must"));
  std::tie(param, message) = refused({{"functions", {f}}, {"function_call", {{"name", "g"}}}});
  CHECK(param == "function_call");
  CHECK(message == "function_call names a function that is not in functions.");
  std::tie(param, message) =
      refused({{"functions", {f}}, {"function_call", f}, {"guided_choice", {"a"}}});
  CHECK(param == "guided_choice");
}

TEST_CASE("an older client's calls and results are those of tools") {
  const json messages = {
      {{"role", "user"}, {"content", "x"}},
      {{"role", "assistant"},
       {"content", nullptr},
       {"refusal", nullptr},
       {"audio", nullptr},
       {"tool_calls", nullptr},
       {"function_call", {{"name", "ns.f"}, {"arguments", "{}"}}}},
      {{"role", "function"}, {"name", "ns.f"}, {"content", "one"}},
      {{"role", "assistant"}, {"function_call", {{"name", "g"}, {"arguments", "{\"a\": 1}"}}}},
      {{"role", "function"}, {"name", "g"}, {"content", nullptr}},
      {{"role", "assistant"}, {"content", nullptr}, {"refusal", "No."}, {"function_call", nullptr}},
      {{"role", "assistant"}, {"content", "Well."}, {"refusal", "No."}, {"annotations", nullptr}}};
  ApiRequest request;
  REQUIRE_FALSE(
      parse_chat(json{{"messages", messages}}.dump(), {.served_model_name = "bytes"}, request));
  const auto& read = std::get<std::vector<ChatMessage>>(request.prompts[0].prompt);
  REQUIRE(read.size() == 7);
  CHECK(read[1] == ChatMessage{"assistant", "", {{"functions.ns.f:0", "ns.f", "{}"}}});
  CHECK(read[2] == ChatMessage{"tool", "one", {}, "functions.ns.f:0", "ns.f"});
  CHECK(read[3] == ChatMessage{"assistant", "", {{"functions.g:1", "g", "{\"a\": 1}"}}});
  CHECK(read[4] == ChatMessage{"tool", "", {}, "functions.g:1", "g"});
  CHECK(read[5] == ChatMessage{"assistant", "No."});
  CHECK(read[6].parts == std::vector<std::string>{"Well.", "No."});
}

}  // namespace troupe::testing
