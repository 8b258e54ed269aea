#include "actors/gateway/answer.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/actors/gateway/fakes.h"
#include "tests/actors/gateway/http_client.h"

namespace troupe {
namespace {

using nlohmann::json;
using testing::ByteModel;

ApiRequest completion(std::size_t prompts = 1, std::uint32_t n = 1) {
  ApiRequest request;
  GenerationRequest generation;
  generation.prompt = std::string("pq");
  generation.n = n;
  request.prompts.assign(prompts, generation);
  return request;
}

GenerationEvent token(char c, float logprob = -0.25f) {
  GenerationEvent event;
  event.text = std::string(1, c);
  event.tokens = {{.token = static_cast<unsigned char>(c), .logprob = logprob, .top = {}}};
  return event;
}

GenerationEvent first(GenerationEvent event) {
  event.prompt_tokens = {256, 'p', 'q'};
  event.cached_tokens = 2;
  event.prompt_logprobs = {{.token = 'p', .logprob = -1.5f, .top = {{'x', -0.5f}}},
                           {.token = 'q', .logprob = -0.75f, .top = {{'q', -0.75f}}}};
  return event;
}

GenerationEvent last(GenerationEvent event, FinishReason finish = FinishReason::kStop) {
  event.finish = finish;
  event.request_done = true;
  return event;
}

/// The whole answer of a complete one.
json whole_of(Answer& answer) {
  std::string text;
  while (!answer.write_piece(text)) {
  }
  return json::parse(text);
}

std::vector<std::string> events_of(const std::string& body) {
  testing::HttpResponse response;
  response.body = body;
  return response.events();
}

json event_json(const std::string& sse) {
  REQUIRE(sse.starts_with("data: "));
  REQUIRE(sse.find("\n\n") == sse.size() - 2);  // One event.
  return json::parse(sse.substr(6));
}

TEST_CASE("JSON strings are escaped and repaired, floats are the shortest that restore them") {
  CHECK(JsonWriter().value("a\"\\\n\t\x01\x7f").text() == "\"a\\\"\\\\\\n\\t\\u0001\x7f\"");
  CHECK(JsonWriter().value("\xff\xc3\xa4\xe2\x82").text() ==
        "\"\xEF\xBF\xBD\xc3\xa4\xEF\xBF\xBD\xEF\xBF\xBD\"");
  CHECK(JsonWriter().value(0.1f).text() == "0.1");
  CHECK(JsonWriter().value(-1.0f).text() == "-1.0");
  CHECK(JsonWriter().value(0.0f).text() == "0.0");
  CHECK(JsonWriter().value(std::numeric_limits<float>::infinity()).text() == "-9999.0");
  CHECK(JsonWriter().value(std::nanf("")).text() == "-9999.0");
  float x = 1e-20f;
  for (int i = 0; i < 1000; ++i, x *= -1.11f) {
    const std::string text = JsonWriter().value(x).text();
    CHECK(json::parse(text).get<float>() == x);
    CHECK(std::stof(text) == x);
  }
}

TEST_CASE("a whole completion") {
  ByteModel model;
  ApiRequest request = completion();
  request.logprobs = 1;
  request.return_token_ids = true;
  Answer answer(request, model, "cmpl-1", 7);
  std::string none;
  answer.add(0, first(token('a')), none);
  CHECK_FALSE(answer.complete());
  answer.add(0, last(token('b', -std::numeric_limits<float>::infinity())), none);
  REQUIRE(answer.complete());
  CHECK(none.empty());
  const json whole = whole_of(answer);
  CHECK(whole["id"] == "cmpl-1");
  CHECK(whole["object"] == "text_completion");
  CHECK(whole["created"] == 7);
  CHECK(whole["model"] == "bytes");
  const json& choice = whole["choices"][0];
  CHECK(choice["index"] == 0);
  CHECK(choice["text"] == "ab");
  CHECK(choice["finish_reason"] == "stop");
  CHECK(choice["token_ids"] == json({'a', 'b'}));
  CHECK(choice["prompt_token_ids"] == json({256, 'p', 'q'}));
  CHECK(choice["logprobs"]["tokens"] == json({"a", "b"}));
  CHECK(choice["logprobs"]["token_logprobs"] == json({-0.25, -9999.0}));
  CHECK(choice["logprobs"]["text_offset"] == json({0, 1}));
  CHECK(choice["logprobs"]["top_logprobs"][0] == json({{"a", -0.25}}));
  CHECK(whole["usage"] == json({{"prompt_tokens", 3},
                                {"completion_tokens", 2},
                                {"total_tokens", 5},
                                {"prompt_tokens_details", {{"cached_tokens", 2}}}}));
}

TEST_CASE("echo puts the prompt before the answer, its first log-probability null") {
  ByteModel model;
  ApiRequest request = completion();
  request.logprobs = 1;
  request.echo = true;
  SUBCASE("with an answer") {
    Answer answer(request, model, "cmpl-1", 7);
    std::string none;
    answer.add(0, last(first(token('a')), FinishReason::kLength), none);
    const json choice = whole_of(answer)["choices"][0];
    CHECK(choice["text"] == "pqa");
    CHECK(choice["logprobs"]["tokens"] == json({"<s>", "p", "q", "a"}));
    CHECK(choice["logprobs"]["token_logprobs"] == json({nullptr, -1.5, -0.75, -0.25}));
    CHECK(choice["logprobs"]["text_offset"] == json({0, 0, 1, 2}));
    CHECK(choice["logprobs"]["top_logprobs"] ==
          json({nullptr, {{"x", -0.5}, {"p", -1.5}}, {{"q", -0.75}}, {{"a", -0.25}}}));
  }
  SUBCASE("without one") {
    Answer answer(request, model, "cmpl-1", 7);
    std::string none;
    answer.add(0, last(first({}), FinishReason::kLength), none);
    const json whole = whole_of(answer);
    CHECK(whole["choices"][0]["text"] == "pq");
    CHECK(whole["choices"][0]["finish_reason"] == "length");
    CHECK(whole["choices"][0]["logprobs"]["tokens"] == json({"<s>", "p", "q"}));
    CHECK(whole["usage"]["completion_tokens"] == 0);
  }
  SUBCASE("of ids, streamed") {
    request.stream = true;
    request.prompts[0].prompt = std::vector<TokenId>{256, 'p', 'q'};
    Answer answer(request, model, "cmpl-1", 7);
    std::string out;
    answer.add(0, first(token('a')), out);
    const json chunk = event_json(out)["choices"][0];
    CHECK(chunk["text"] == "<s>pqa");
    CHECK(chunk["logprobs"]["tokens"] == json({"<s>", "p", "q", "a"}));
    CHECK(chunk["finish_reason"] == nullptr);
    out.clear();
    answer.add(0, last(token('b')), out);
    const json next = event_json(out)["choices"][0];
    CHECK(next["text"] == "b");
    CHECK(next["logprobs"]["text_offset"] == json({6}));
  }
}

TEST_CASE("every token of log-probabilities has an entry of its own") {
  ByteModel model;
  ApiRequest request = completion();
  request.logprobs = 4;
  request.echo = true;
  request.prompt_logprobs = 4;
  GenerationEvent event = last(token('a'));
  event.prompt_tokens = {256, 0xf0};
  // Parts of characters, and ids that the tokenizer does not know.
  const std::vector<TokenLogprob> top = {{0xf0, -0.5f}, {0xff, -1}, {300, -2}, {'a', -3}};
  event.prompt_logprobs = {{.token = 0xf0, .logprob = -0.5f, .top = top}};
  event.tokens = {{.token = 0x80, .logprob = -4, .top = top}};
  for (const bool ids : {false, true}) {
    request.tokens_as_ids = ids;
    Answer answer(request, model, "cmpl-1", 7);
    std::string none;
    answer.add(0, event, none);
    const json choice = whole_of(answer)["choices"][0];
    const json& logprobs = choice["logprobs"];
    json entries{{R"(bytes:\xf0)", -0.5}, {R"(bytes:\xff)", -1}, {"token_id:300", -2}, {"a", -3}};
    if (ids)
      entries = {
          {"token_id:240", -0.5}, {"token_id:255", -1}, {"token_id:300", -2}, {"token_id:97", -3}};
    CHECK(logprobs["top_logprobs"][1] == entries);
    const std::string chosen = ids ? "token_id:128" : R"(bytes:\x80)";
    entries[chosen] = -4;
    CHECK(logprobs["top_logprobs"][2] == entries);
    CHECK(logprobs["tokens"][2] == chosen);
    CHECK(choice["prompt_logprobs"][1]["240"]["decoded_token"] == R"(bytes:\xf0)");
  }
}

TEST_CASE("tokens that read the same are told apart, and the one that is there keeps its name") {
  struct Twins : ByteModel {
    std::string_view token_bytes(TokenId id) const override {
      return ByteModel::token_bytes(id == 'A' ? 'a' : id);
    }
  } model;
  ApiRequest request = completion();
  request.logprobs = 2;
  for (const TokenId there : {'a', 'A'}) {
    Answer answer(request, model, "cmpl-1", 7);
    GenerationEvent event = last(token('a', there == 'a' ? -1 : -2));
    event.tokens[0].token = there;
    event.tokens[0].top = {{'a', -1}, {'A', -2}};
    std::string none;
    answer.add(0, std::move(event), none);
    const json top = whole_of(answer)["choices"][0]["logprobs"]["top_logprobs"][0];
    CHECK(top == (there == 'a' ? json{{"a", -1}, {"token_id:65", -2}}
                               : json{{"a", -2}, {"token_id:97", -1}}));
  }
}

TEST_CASE("text_offset is a place in the text, in characters") {
  ByteModel model;
  ApiRequest request = completion();
  request.logprobs = 0;
  request.echo = true;
  const std::string prompt = "h\xc3\xa9 \xf0\x9f\x99\x82";  // h, e with an accent, space, a face
  std::vector<TokenId> ids{256};
  for (const char c : prompt) ids.push_back(static_cast<unsigned char>(c));
  const auto events = [&] {
    std::vector<GenerationEvent> events;
    for (const char c : std::string("x\xc3\xa4"
                                    "\xe2"
                                    "yz"))
      events.push_back(token(c));
    events[0].prompt_tokens = ids;
    // As the decoder tells it: whole characters, and U+FFFD for the half one.
    const char* texts[] = {"x", "", "\xc3\xa4", "", "\xef\xbf\xbdy", "z"};
    for (std::size_t i = 0; i < events.size(); ++i) events[i].text = texts[i];
    GenerationEvent end = token('z');
    end.tokens[0].token = 256;  // A special token: it adds nothing.
    end.text.clear();
    events.push_back(last(std::move(end)));
    return events;
  };
  const json answer_offsets{4, 5, 5, 6, 7, 8, 9};
  SUBCASE("of a text, whose BOS is not in it") {
    request.prompts[0].prompt = prompt;
    json expected{0, 0, 1, 1, 2, 3, 3, 3, 3};
    expected.insert(expected.end(), answer_offsets.begin(), answer_offsets.end());
    Answer answer(request, model, "cmpl-1", 7);
    std::string none;
    for (GenerationEvent& event : events()) answer.add(0, std::move(event), none);
    const json choice = whole_of(answer)["choices"][0];
    CHECK(choice["text"] == prompt + "x\xc3\xa4\xef\xbf\xbdyz");
    CHECK(choice["logprobs"]["text_offset"] == expected);
  }
  SUBCASE("of ids, which are written out, streamed") {
    request.prompts[0].prompt = ids;
    request.stream = true;
    json expected{0, 3, 4, 4, 5, 6, 6, 6, 6}, offsets = json::array();
    for (const json& offset : answer_offsets) expected.push_back(offset.get<int>() + 3);
    Answer answer(request, model, "cmpl-1", 7);
    std::string out;
    for (GenerationEvent& event : events()) answer.add(0, std::move(event), out);
    for (const std::string& event : events_of(out)) {
      const json chunk = json::parse(event);
      const json& some = chunk["choices"][0]["logprobs"]["text_offset"];
      offsets.insert(offsets.end(), some.begin(), some.end());
    }
    CHECK(offsets == expected);
  }
}

TEST_CASE("choices are counted prompt by prompt") {
  ByteModel model;
  Answer answer(completion(2, 2), model, "cmpl-1", 7);
  std::string none;
  for (std::uint32_t choice : {1u, 0u}) {
    for (std::size_t prompt : {1u, 0u}) {
      GenerationEvent event = token(static_cast<char>('a' + 2 * prompt + choice));
      if (choice == 1) event = first(event);
      event.choice = choice;
      event.finish = FinishReason::kLength;
      event.request_done = choice == 0;
      answer.add(prompt, std::move(event), none);
    }
  }
  REQUIRE(answer.complete());
  const json whole = whole_of(answer);
  REQUIRE(whole["choices"].size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(whole["choices"][i]["index"] == i);
    CHECK(whole["choices"][i]["text"] == std::string(1, static_cast<char>('a' + i)));
  }
  CHECK(whole["usage"]["prompt_tokens"] == 6);
  CHECK(whole["usage"]["completion_tokens"] == 4);
}

TEST_CASE("a chat, whole") {
  ByteModel model;
  ApiRequest request = completion();
  request.chat = true;
  request.logprobs = 1;
  request.prompts[0].prompt = std::vector<ChatMessage>{{"user", "x"}};
  Answer answer(request, model, "chatcmpl-1", 7);
  std::string none;
  GenerationEvent event = first(token('a'));
  event.tokens[0].token = 0xC3;  // Half a character.
  event.tokens[0].top = {{.token = 'z', .logprob = -1.0f}};
  answer.add(0, last(std::move(event)), none);
  const json whole = whole_of(answer);
  CHECK(whole["object"] == "chat.completion");
  const json& choice = whole["choices"][0];
  CHECK(choice["message"] == json({{"role", "assistant"}, {"content", "a"}}));
  const json& position = choice["logprobs"]["content"][0];
  CHECK(position["token"] == "bytes:\\xc3");
  CHECK(position["bytes"] == json({0xC3}));
  CHECK(position["logprob"] == -0.25);
  CHECK(position["top_logprobs"][0] == json({{"token", "z"}, {"logprob", -1.0}, {"bytes", {'z'}}}));
}

TEST_CASE("a chat, streamed, begins with the role and ends with the usage") {
  ByteModel model;
  ApiRequest request = completion();
  request.chat = request.stream = request.include_usage = true;
  Answer answer(request, model, "chatcmpl-1", 7);
  std::string out;
  GenerationEvent beginning = first(token('a'));
  beginning.text.clear();  // Half a character: no text yet.
  answer.add(0, std::move(beginning), out);
  json chunk = event_json(out);
  CHECK(chunk["object"] == "chat.completion.chunk");
  CHECK(chunk["choices"][0]["delta"] == json({{"role", "assistant"}, {"content", ""}}));
  CHECK(chunk["usage"] == nullptr);
  out.clear();
  GenerationEvent silent = token('b');
  silent.text.clear();
  answer.add(0, std::move(silent), out);
  CHECK(out.empty());
  answer.add(0, token('c'), out);
  CHECK(event_json(out)["choices"][0]["delta"] == json({{"content", "c"}}));
  out.clear();
  answer.add(0, last(GenerationEvent{}), out);
  CHECK(event_json(out)["choices"][0]["finish_reason"] == "stop");
  const std::string end = answer.stream_end();
  CHECK(end.ends_with("data: [DONE]\n\n"));
  const json usage = json::parse(end.substr(6, end.find("\n\n") - 6));
  CHECK(usage["choices"] == json::array());
  CHECK(usage["usage"]["completion_tokens"] == 3);
  CHECK(usage["usage"]["prompt_tokens_details"]["cached_tokens"] == 2);
}

TEST_CASE("thoughts go to reasoning_content") {
  ByteModel model;
  ApiRequest request = completion();
  request.chat = true;
  request.start = {ReasoningStyle::kThink, true};
  const std::string text = "hm</think>yes";
  const auto feed = [&](Answer& answer, std::string& out) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      GenerationEvent event = token(text[i]);
      if (i == 0) event = first(event);
      if (i + 1 == text.size()) event = last(event);
      answer.add(0, std::move(event), out);
    }
  };
  SUBCASE("whole") {
    Answer answer(request, model, "chatcmpl-1", 7);
    std::string none;
    feed(answer, none);
    const json message = whole_of(answer)["choices"][0]["message"];
    CHECK(message["reasoning_content"] == "hm");
    CHECK(message["content"] == "yes");
  }
  SUBCASE("not opened for this request") {
    request.start = {ReasoningStyle::kThink};
    Answer answer(request, model, "chatcmpl-1", 7);
    std::string none;
    feed(answer, none);
    CHECK(whole_of(answer)["choices"][0]["message"]["content"] == "hm</think>yes");
  }
  SUBCASE("streamed") {
    request.stream = true;
    Answer answer(request, model, "chatcmpl-1", 7);
    std::string out, reasoning, content;
    feed(answer, out);
    for (const std::string& event : events_of(out)) {
      const json delta = json::parse(event)["choices"][0]["delta"];
      reasoning += delta.value("reasoning_content", "");
      content += delta.value("content", "");
    }
    CHECK(reasoning == "hm");
    CHECK(content == "yes");
  }
}

TEST_CASE("without a tokenizer tokens show as their ids") {
  ByteModel model;
  model.tokenizer = false;
  ApiRequest request = completion();
  request.prompts[0].prompt = std::vector<TokenId>{1, 2};
  request.logprobs = 1;
  Answer answer(request, model, "cmpl-1", 7);
  std::string none;
  GenerationEvent event = first(token('a'));
  event.text.clear();
  answer.add(0, last(std::move(event)), none);
  const json choice = whole_of(answer)["choices"][0];
  CHECK(choice["text"] == "");
  CHECK(choice["logprobs"]["tokens"] == json({"token_id:97"}));
}

TEST_CASE("what may become a stop string is not read twice by who comes back") {
  ByteModel model;
  ApiRequest request = completion();
  request.chat = request.stream = true;
  request.start = {ReasoningStyle::kThink, true};
  request.prompts[0].stop = {"zz", "<x", "\xc3\xa9!"};
  struct Case {
    std::string had, held;  // The Router gave out `had` without `held`.
  };
  for (const Case& c : {Case{"ab<", "<"}, Case{"ab", ""}, Case{"z", "z"}, Case{" \xc3", "\xc3"}}) {
    CAPTURE(c.had);
    Answer answer(request, model, "id", 0);
    answer.resume({static_cast<std::uint32_t>(c.had.size())});
    REQUIRE(answer.needs_past());
    for (const char byte : c.had + "more") answer.add_past(0, token(byte));
    answer.past_is_there();
    std::string out;
    GenerationEvent rest = last(token('>'));
    rest.text = c.held + (c.held == "<"      ? "/think>c"
                          : c.held == "\xc3" ? "\xa9</think>c"
                                             : "</think>c");
    answer.add(0, std::move(rest), out);
    const json delta = json::parse(out.substr(out.find("data: ") + 6))["choices"][0]["delta"];
    CHECK(delta["content"] == "c");
    const std::string thought = c.held == "z" ? "z" : c.held == "\xc3" ? " \xc3\xa9" : "";
    CHECK(delta.value("reasoning_content", "") == thought);
  }
}

}  // namespace
}  // namespace troupe
