// Fields that vLLM, OpenAI and DeepSeek have beside the common ones: what an answer took, what is
// known of its prompt, the best of several, and a message that goes on.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "actors/gateway/answer.h"
#include "actors/gateway/request_form.h"
#include "tests/actors/gateway/stand.h"

namespace troupe::testing {
namespace {

using nlohmann::json;

ApiRequest asked_for(const json& body, const ByteModel& model = {}) {
  const ModelFacts facts{.served_model_name = "bytes", .reasoning = true};
  ApiRequest request;
  const bool chat = body.contains("messages");
  const auto error = chat ? parse_chat(body.dump(), facts, request)
                          : parse_completion(body.dump(), facts, request);
  if (error) MESSAGE(error->message);
  REQUIRE_FALSE(error);
  request.start = model.reasoning(request.prompts.front());
  return request;
}

json chat_of(json more = json::object()) {
  json body{{"messages", {{{"role", "user"}, {"content", "a"}}}}};
  body.update(more);
  return body;
}

GenerationEvent event_of(const ByteModel& model, const std::vector<TokenId>& tokens) {
  GenerationEvent event;
  for (const TokenId token : tokens) {
    event.tokens.push_back({.token = token, .logprob = -0.5f, .top = {}});
    event.text += model.token_bytes(token);
  }
  event.prompt_tokens = {256, 'p', 'q'};
  event.prompt_logprobs = {{'p', -1.5f, {{'x', -0.5f}, {'y', -1.0f}}},
                           {'q', -0.75f, {{'q', -0.75f}, {'z', -2.0f}}}};
  return event;
}

json whole_answer(Answer& answer) {
  std::string text;
  while (!answer.write_piece(text)) {
  }
  return json::parse(text);
}

GenerationEvent as_end(GenerationEvent event) {
  event.finish = FinishReason::kStop;
  event.request_done = true;
  return event;
}

TEST_CASE("tokens of thoughts are counted, however they come") {
  ByteModel model;
  model.thinks = true;
  const std::vector<TokenId> tokens{ByteModel::kOpen, 'a', 'b', ByteModel::kClose, 'c'};
  for (std::size_t cut = 0; cut <= tokens.size(); ++cut) {
    CAPTURE(cut);
    const auto middle = tokens.begin() + static_cast<std::ptrdiff_t>(cut);
    Answer answer(asked_for(chat_of(), model), model, "id", 1);
    std::string none;
    answer.add(0, event_of(model, {tokens.begin(), middle}), none);
    answer.add(0, as_end(event_of(model, {middle, tokens.end()})), none);
    const json usage = whole_answer(answer)["usage"];
    CHECK(usage["completion_tokens"] == 5);
    CHECK(usage["completion_tokens_details"]["reasoning_tokens"] == 2);
  }
  // The prompt has opened them; a thought that does not end.
  model.opens = true;
  Answer answer(asked_for(chat_of({{"include_reasoning", false}}), model), model, "id", 1);
  std::string none;
  answer.add(0, as_end(event_of(model, {'a', 'b', 'c'})), none);
  CHECK(whole_answer(answer)["usage"]["completion_tokens_details"]["reasoning_tokens"] == 3);
  // A completion has none.
  Answer completion(asked_for({{"prompt", "a"}}), model, "id", 1);
  completion.add(0, as_end(event_of(model, tokens)), none);
  CHECK_FALSE(whole_answer(completion)["usage"].contains("completion_tokens_details"));
}

TEST_CASE("each chunk has its choice's usage if that is asked for") {
  ByteModel model;
  model.thinks = model.opens = true;
  const json options{{"include_usage", true}, {"continuous_usage_stats", true}};
  Answer answer(
      asked_for(chat_of({{"n", 2}, {"stream", true}, {"stream_options", options}}), model), model,
      "id", 1);
  std::string out;
  const auto usage = [&] {
    const std::size_t begin = out.find("data: ") + 6;
    const json chunk = json::parse(out.substr(begin, out.find("\n\n") - begin));
    out.clear();
    return chunk["usage"];
  };
  answer.add(0, event_of(model, {'a', 'b'}), out);
  json told = usage();
  CHECK(told["prompt_tokens"] == 3);
  CHECK(told["completion_tokens"] == 2);
  CHECK(told["total_tokens"] == 5);
  GenerationEvent other = event_of(model, {'a', ByteModel::kClose, 'c'});
  other.choice = 1;
  answer.add(0, other, out);
  told = usage();
  CHECK(told["completion_tokens"] == 3);
  CHECK(told["completion_tokens_details"]["reasoning_tokens"] == 1);
  answer.add(0, event_of(model, {'d'}), out);
  CHECK(usage()["completion_tokens"] == 3);
  out = answer.stream_end();
  CHECK(usage()["completion_tokens"] == 6);
  // Without include_usage there is none, as with vLLM.
  const ApiRequest without = asked_for(
      {{"prompt", "a"}, {"stream", true}, {"stream_options", {{"continuous_usage_stats", true}}}});
  CHECK_FALSE(without.continuous_usage);
}

TEST_CASE("a stream that goes on counts the thoughts that its client has") {
  ByteModel model;
  model.thinks = model.opens = true;
  Stand stand({}, model);
  FakeService::Script script;
  script.text = "abc</think>de";
  stand.service.set(script);
  const json options{{"include_usage", true}};
  HttpResponse answer = stand.client().post(
      "/v1/chat/completions", chat_of({{"stream", true}, {"stream_options", options}}));
  const std::string id = answer.headers["x-request-id"];
  const auto usage_of = [](const HttpResponse& response) {
    const auto events = response.events();
    return json::parse(events[events.size() - 2])["usage"];
  };
  const json usage = usage_of(answer);
  // Here a tag is of eight tokens, of which the last one closes it.
  CHECK(usage["completion_tokens_details"]["reasoning_tokens"] == 10);
  for (std::size_t from = 1; from <= script.text.size(); ++from) {
    CAPTURE(from);
    const auto path = "/v1/requests/" + id + "/events?from=" + std::to_string(from);
    HttpResponse rest = stand.client().get(path);
    std::string body;  // Without the ids of events.
    for (std::size_t at = 0; (at = rest.body.find("data: ", at)) != std::string::npos; ++at)
      body += rest.body.substr(at, rest.body.find("\n\n", at) + 2 - at);
    rest.body = body;
    CHECK(usage_of(rest) == usage);
  }
  CHECK(stand.client().get("/v1/requests/" + id).json()["usage"] == usage);
}

TEST_CASE("the log-probabilities of a prompt, as vLLM writes them") {
  ByteModel model;
  const auto entry = [](const char* text, double logprob, json rank) {
    return json{{"logprob", logprob}, {"rank", rank}, {"decoded_token", text}};
  };
  const json two = json::array(
      {nullptr,
       {{"112", entry("p", -1.5, nullptr)},
        {"120", entry("x", -0.5, 1)},
        {"121", entry("y", -1.0, 2)}},
       {{"113", entry("q", -0.75, 1)}, {"122", entry("z", -2.0, 2)}}});
  const json one = json::array({nullptr,
                                {{"112", entry("p", -1.5, nullptr)}, {"120", entry("x", -0.5, 1)}},
                                {{"113", entry("q", -0.75, 1)}}});
  const auto whole = [&](const json& body) {
    Answer answer(asked_for(body), model, "id", 1);
    std::string none;
    const std::size_t n = body.value("n", std::size_t{1});
    for (std::size_t i = 0; i < n; ++i) {
      GenerationEvent event = event_of(model, {'a'});
      event.choice = static_cast<std::uint32_t>(i);
      event.finish = FinishReason::kStop;
      event.request_done = i + 1 == n;
      answer.add(0, std::move(event), none);
    }
    return whole_answer(answer);
  };
  json answer = whole(chat_of({{"prompt_logprobs", 2}}));
  CHECK(answer["prompt_logprobs"] == two);
  CHECK_FALSE(answer["choices"][0].contains("prompt_logprobs"));
  answer = whole({{"prompt", "pq"}, {"n", 2}, {"prompt_logprobs", 1}});
  for (int i = 0; i < 2; ++i) CHECK(answer["choices"][i]["prompt_logprobs"] == one);
  // Each list has as many as it was asked for.
  answer = whole({{"prompt", "pq"}, {"echo", true}, {"logprobs", 1}, {"prompt_logprobs", 2}});
  CHECK(answer["choices"][0]["prompt_logprobs"] == two);
  CHECK(answer["choices"][0]["logprobs"]["top_logprobs"][1] == json({{"x", -0.5}, {"p", -1.5}}));
  answer = whole({{"prompt", "pq"}, {"echo", true}, {"logprobs", 2}, {"prompt_logprobs", 1}});
  CHECK(answer["choices"][0]["prompt_logprobs"] == one);
  CHECK(answer["choices"][0]["logprobs"]["top_logprobs"][1].size() == 3);
  CHECK(asked_for({{"prompt", "pq"}, {"echo", true}, {"logprobs", 1}, {"prompt_logprobs", 2}})
            .prompts[0]
            .prompt_logprobs == 2);
}

TEST_CASE("long lists of a prompt's log-probabilities are written in pieces") {
  ByteModel model;
  Answer answer(asked_for(chat_of({{"prompt_logprobs", 2}})), model, "id", 1);
  GenerationEvent event = as_end(event_of(model, {'a'}));
  event.prompt_tokens.assign(10'000, 'p');
  event.prompt_logprobs.assign(9'999, event.prompt_logprobs[0]);
  std::string none, text, piece;
  answer.add(0, std::move(event), none);
  int pieces = 0;
  for (bool last = false; !last; ++pieces) {
    piece.clear();
    last = answer.write_piece(piece);
    CHECK(piece.size() < 2 * limits::kHttpPieceBytes);
    text += piece;
  }
  CHECK(pieces > 3);
  CHECK(json::parse(text)["prompt_logprobs"].size() == 10'000);
}

TEST_CASE("a prompt's log-probabilities take room") {
  AnswerRoom room({.one_bytes_max = 1000, .all_bytes_max = 10'000});
  std::size_t taken = 0;
  CHECK_FALSE(room.take(asked_for({{"prompt", {1, 2, 3}}, {"prompt_logprobs", 20}}), 4096, taken));
  CHECK(taken == 3 * 21 * 8);
  CHECK(room.take(asked_for({{"prompt", std::string(100, 'a')}, {"prompt_logprobs", 2}}), 4096,
                  taken)
            ->status == 400);
}

TEST_CASE("the best of several are shown, the best first") {
  ByteModel model;
  const json body{{"prompt", {"a", "b"}}, {"n", 2}, {"best_of", 4}, {"logprobs", 0}};
  const ApiRequest request = asked_for(body);
  CHECK(request.n() == 4);
  CHECK(request.prompts[0].logprobs == 0);
  CHECK(asked_for({{"prompt", "a"}, {"best_of", 4}}).prompts[0].logprobs == 0);
  Answer answer(request, model, "id", 1);
  std::string none;
  // Means -2, -1, -0.5, -1: the sum alone would prefer the first, ties keep their order.
  const std::vector<std::vector<float>> logprobs{
      {-2}, {-1, -1, -1}, {-0.5, -0.5, -0.5, -0.5, -0.5}, {-1}};
  for (std::size_t prompt = 0; prompt < 2; ++prompt) {
    for (std::size_t i = 0; i < 4; ++i) {
      GenerationEvent event;
      event.choice = static_cast<std::uint32_t>(i);
      event.prompt_tokens = {'a'};
      event.text = std::string(1, static_cast<char>('w' + i));
      for (const float value : logprobs[i]) event.tokens.push_back({'x', value, {}});
      event.finish = FinishReason::kLength;
      event.request_done = i == 3;
      answer.add(prompt, std::move(event), none);
    }
  }
  const json whole = whole_answer(answer);
  REQUIRE(whole["choices"].size() == 4);
  for (int i = 0; i < 4; ++i) {
    CHECK(whole["choices"][i]["index"] == i);
    CHECK(whole["choices"][i]["text"] == (i % 2 == 0 ? "y" : "x"));
  }
  CHECK(whole["choices"][0]["logprobs"]["token_logprobs"].size() == 5);
  CHECK(whole["usage"]["completion_tokens"] == 20);  // Of all that were generated.
}

TEST_CASE("the best are found again, and cannot be read as they come") {
  Stand stand;
  HttpResponse answer =
      stand.client().post("/v1/completions", {{"prompt", "a"}, {"max_tokens", 3}, {"best_of", 2}});
  REQUIRE(answer.status == 200);
  CHECK(answer.json()["choices"].size() == 1);
  CHECK(answer.json()["usage"]["completion_tokens"] == 6);
  const std::string path = "/v1/requests/" + answer.headers["x-request-id"];
  CHECK(stand.client().get(path).json()["choices"] == answer.json()["choices"]);
  const HttpResponse events = stand.client().get(path + "/events");
  CHECK(events.status == 400);
  CHECK(events.json()["error"]["param"] == "best_of");
}

TEST_CASE("whether an answer begins with a thought is told by its own prompt, for all readers") {
  ByteModel model;
  model.thinks = model.opens = true;
  Stand stand({}, model);
  FakeService::Script script;
  script.text = "hm</think>so";
  stand.service.set(script);
  for (const bool off : {false, true}) {
    const json chat{{"messages", {{{"role", "user"}, {"content", off ? "off" : "on"}}}}};
    HttpResponse answer = stand.client().post("/v1/chat/completions", chat);
    REQUIRE(answer.status == 200);
    const json message = answer.json()["choices"][0]["message"];
    CHECK(message["content"] == (off ? script.text : "so"));
    const std::string path = "/v1/requests/" + answer.headers["x-request-id"];
    CHECK(stand.client().get(path).json()["choices"][0]["message"] == message);
  }
}

TEST_CASE("a switch that counts less than the messages is not refused") {
  ByteModel model;
  model.thinks = model.opens = true;
  Stand stand({}, model);
  const json chat{{"messages", {{{"role", "user"}, {"content", "off"}}}},
                  {"enable_thinking", true}};
  CHECK(stand.client().post("/v1/chat/completions", chat).status == 200);
}

TEST_CASE("special tokens of the text move text_offset, others do not") {
  ByteModel model;
  for (const bool skipped : {true, false}) {
    CAPTURE(skipped);
    Answer answer(
        asked_for({{"prompt", "a"}, {"logprobs", 0}, {"skip_special_tokens", skipped}}), model,
        "id", 1);
    std::string none;
    answer.add(0, as_end(event_of(model, {'a', 256, 'b'})), none);
    CHECK(whole_answer(answer)["choices"][0]["logprobs"]["text_offset"] ==
          (skipped ? json({0, 1, 1}) : json({0, 1, 4})));
  }
}

}  // namespace
}  // namespace troupe::testing
