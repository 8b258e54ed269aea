// What is asked of Responses that are there: their events from a number on, their items by their
// ids, and the log-probabilities of what they said.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/actors/gateway/stand.h"
#include "tests/actors/gateway/thinking_caller.h"
#include "tests/actors/gateway/typed_events.h"

namespace troupe::testing {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

json asked(json more = json::object()) {
  json body = {{"input", "x"}, {"tools", {{{"type", "function"}, {"name", "f"}}}}};
  body.update(more);
  return body;
}

const json kLogprobs = {{"include", {"message.output_text.logprobs"}}, {"top_logprobs", 2}};

/// The text that tokens make.
std::string text_of(const json& logprobs) {
  std::string text;
  for (const json& token : logprobs) text += token["token"].get<std::string>();
  return text;
}

TEST_CASE("a response's events are told again from any of them on") {
  Stand stand({}, thinking_caller());
  // Told a token at a time, or as fast as they come.
  for (const std::chrono::microseconds tick : {100us, 0us}) {
    stand.service.set(script_of_all(tick));
    for (const bool logprobs : {false, true}) {
      json body = asked({{"stream", true}});
      if (logprobs) body.update(kLogprobs);
      HttpResponse answer = stand.client().post("/v1/responses", body);
      const auto all = typed_events(answer.body);
      const std::string path = "/v1/responses/" + answer.headers["x-request-id"] + "?stream=";
      for (std::size_t after = 0; after < all.size(); ++after) {
        const auto rest = typed_events(
            stand.client().get(path + "1&starting_after=" + std::to_string(after)).body);
        REQUIRE(rest.size() == all.size() - after - 1);
        for (std::size_t i = 0; i < rest.size(); ++i) {
          json is = rest[i].data, was = all[after + 1 + i].data;
          for (json* event : {&is, &was})
            if (event->contains("response")) (*event)["response"].erase("created_at");
          CHECK(is == was);
        }
      }
      CHECK(typed_events(stand.client().get(path + "true").body).size() == all.size());
    }
  }
}

TEST_CASE("a query of a response that makes no sense is refused") {
  Stand stand({}, thinking_caller());
  stand.service.set(script_of_all());
  const std::string id = stand.client().post("/v1/responses", asked()).json()["id"];
  const auto refused = [&](const std::string& path, const std::string& param) {
    const HttpResponse answer = stand.client().get(path);
    CHECK(answer.status == 400);
    CHECK(answer.json()["error"]["param"] == param);
  };
  const std::string path = "/v1/responses/" + id;
  refused(path + "?stream=yes", "stream");
  refused(path + "?stream=", "stream");
  refused(path + "?stream=true&stream=true", "stream");
  refused(path + "?starting_after=1", "starting_after");
  refused(path + "?stream=false&starting_after=1", "starting_after");
  for (const char* const number : {"-1", "x", "", "1.5", "99999999999999999999"})
    refused(path + "?stream=true&starting_after=" + number, "starting_after");
  refused(path + "?stream=true&starting_after=1&starting_after=2", "starting_after");
  CHECK(stand.client().get(path + "?stream=0&include=x").status == 200);
  // The same stream by its other name, which others than Responses have, too.
  CHECK(typed_events(stand.client().get("/v1/requests/" + id + "/events?starting_after=0").body)
            .front()
            .type == "response.in_progress");
  const json chat{{"messages", {{{"role", "user"}, {"content", "a"}}}}};
  const std::string other = stand.client().post("/v1/chat/completions", chat).json()["id"];
  refused("/v1/requests/" + other + "/events?starting_after=1", "starting_after");
}

TEST_CASE("a response's text has the log-probabilities of its tokens") {
  Stand stand({}, thinking_caller());
  stand.service.set(script_of_all(100us));
  const std::string said = "Let me see.";
  const std::size_t first = kThoughtTextAndCalls.find(said);
  const json whole = stand.client().post("/v1/responses", asked(kLogprobs)).json();
  CHECK(whole["top_logprobs"] == 2);
  const json logprobs = whole["output"][1]["content"][0]["logprobs"];
  CHECK(text_of(logprobs) == said);
  for (std::size_t i = 0; i < logprobs.size(); ++i) {
    const float logprob = -0.1f * static_cast<float>(first + i + 1);
    CHECK(logprobs[i]["logprob"].get<float>() == logprob);
    CHECK(logprobs[i]["bytes"] == json({static_cast<int>(said[i])}));
    REQUIRE(logprobs[i]["top_logprobs"].size() == 2);
    CHECK(logprobs[i]["top_logprobs"][1]["logprob"].get<float>() == logprob - 1);
    CHECK(logprobs[i]["top_logprobs"][0]["bytes"] == logprobs[i]["bytes"]);
  }
  CHECK_FALSE(whole["output"][0]["content"][0].contains("logprobs"));

  json streamed = asked(kLogprobs);
  streamed["stream"] = true;
  json deltas = json::array();
  for (const TypedEvent& event :
       typed_events(stand.client().post("/v1/responses", streamed).body)) {
    if (event.type == "response.output_text.delta") {
      CHECK(text_of(event.data["logprobs"]) == event.data["delta"]);
      for (const json& token : event.data["logprobs"]) deltas.push_back(token);
    }
    if (event.type == "response.output_text.done") CHECK(event.data["logprobs"] == deltas);
    if (event.type == "response.completed")
      CHECK(event.data["response"]["output"][1]["content"][0]["logprobs"] == logprobs);
  }
  CHECK(text_of(deltas) == said);
  CHECK_FALSE(deltas[0].contains("bytes"));
  CHECK_FALSE(deltas[0]["top_logprobs"][0].contains("bytes"));

  // They are there when it is found, and not where nobody asks for them.
  const std::string id = whole["id"];
  CHECK(stand.client().get("/v1/responses/" + id).json()["output"] == whole["output"]);
  const json plain = stand.client().post("/v1/responses", asked()).json();
  CHECK(plain["output"][1]["content"][0]["logprobs"] == json::array());
  CHECK(plain["top_logprobs"] == 0);
}

TEST_CASE("text that was held back has its tokens, and characters all of theirs") {
  Stand stand({}, thinking_caller());
  FakeService::Script script;
  script.text = "a <<tool_b\xc3\xa9 \n c <tool_call>no</tool_call> d";
  script.stops = true;
  stand.service.set(script);
  for (const bool stream : {false, true}) {
    json body = asked(kLogprobs);
    body["stream"] = stream;
    const HttpResponse answer = stand.client().post("/v1/responses", body);
    const json response =
        stream ? typed_events(answer.body).back().data["response"] : answer.json();
    const json part = response["output"][0]["content"][0];
    std::string bytes;
    for (const json& token : part["logprobs"])
      for (const json& byte : token["bytes"]) bytes += static_cast<char>(byte.get<int>());
    CHECK(bytes == script.text);
  }
}

TEST_CASE("items of a response are taken by their ids, those that it was asked, too") {
  Stand stand({}, thinking_caller());
  stand.service.set(script_of_all());
  const auto post = [&](const json& input) {
    return stand.client().post("/v1/responses", asked({{"input", input}})).json();
  };
  const auto prompt = [&] {
    return std::get<std::vector<ChatMessage>>(stand.service.seen().back().prompt);
  };
  const json first = post("x");
  const json results = {{{"type", "function_call_output"},
                         {"call_id", first["output"][2]["call_id"]},
                         {"output", "r"}},
                        {{"type", "function_call_output"},
                         {"call_id", first["output"][3]["call_id"]},
                         {"output", {{{"type", "input_text"}, {"text", "s"}}}}}};
  json input = json::array();
  input.push_back({{"role", "user"}, {"content", {{{"type", "input_text"}, {"text", "x"}}}}});
  for (const json& item : first["output"]) input.push_back(item);
  for (const json& item : results) input.push_back(item);
  const json second = post(input);
  const auto expected = prompt();
  REQUIRE(expected.size() == 4);

  const std::string path = "/v1/responses/" + second["id"].get<std::string>() + "/input_items";
  const json items = stand.client().get(path + "?order=asc").json()["data"];
  REQUIRE(items.size() == 7);
  CHECK(items[5]["output"] == "r");
  CHECK(items[6]["output"] == results[1]["output"]);
  json references = json::array();
  for (const json& item : items)
    references.push_back({{"type", "item_reference"}, {"id", item["id"]}});
  post(references);
  CHECK(prompt() == expected);

  // The response is read once for all of them.
  json many = json::array();
  for (int i = 0; i < 120; ++i) many.push_back(references[0]);
  const std::size_t asked_before = stand.service.asked();
  post(many);
  CHECK(prompt().size() == 120);
  CHECK(stand.service.asked() == asked_before + 1);

  const auto refused = [&](const std::string& id) {
    const HttpResponse answer = stand.client().post(
        "/v1/responses", asked({{"input", {{{"type", "item_reference"}, {"id", id}}}}}));
    CHECK(answer.status == 400);
    CHECK(answer.json()["error"]["param"] == "input");
    return answer.json()["error"]["message"].get<std::string>();
  };
  const std::string last = items[6]["id"];
  CHECK(refused(last.substr(0, last.size() - 1) + "7").find("has no such item") != last.npos);
  const json unkept =
      stand.client().post("/v1/responses", asked({{"store", false}})).json()["output"][1]["id"];
  CHECK(refused(unkept).find("was not stored") != last.npos);
  CHECK(refused("msg_1").find("no item's id") != last.npos);
  CHECK(refused("msg_1_0").find("there is no response") != last.npos);
}

}  // namespace
}  // namespace troupe::testing
