#include "actors/gateway/tokenizer_answer.h"

#include <doctest/doctest.h>

#include <memory>
#include <random>

#include "tests/actors/gateway/stand.h"

namespace troupe::testing {
namespace {

using nlohmann::json;

TokenizeRequest text_request(std::string text) {
  TokenizeRequest request;
  request.of.prompt = std::move(text);
  return request;
}

std::string all_pieces(TokenizerAnswer& answer, std::size_t& pieces) {
  std::string all;
  for (bool last = false; !last; ++pieces) {
    std::string piece;
    last = answer.write_piece(piece);
    CHECK(piece.size() <= 2 * limits::kHttpPieceBytes);
    all += piece;
  }
  return all;
}

TEST_CASE("the tokenizer's answers are counted, and written in pieces") {
  const ByteModel model;
  AnswerRoom room({.one_bytes_max = 5u << 20, .all_bytes_max = 7u << 20});
  const std::string text(1'000'000, 'a');
  auto first = std::make_unique<TokenizerAnswer>(room, model);
  REQUIRE(!first->encode(text_request(text)));
  CHECK(room.bytes() >= 4'000'000);
  TokenizerAnswer second(room, model);
  CHECK(second.encode(text_request(text))->status == 429);
  std::size_t pieces = 0;
  const json tokens = json::parse(all_pieces(*first, pieces));
  CHECK(pieces > 10);
  CHECK(tokens["count"] == 1'000'001);
  CHECK(tokens["tokens"].size() == 1'000'001);
  first.reset();
  CHECK(room.bytes() == 0);
  const auto too_large = TokenizerAnswer(room, model).encode(text_request(text + text));
  REQUIRE(too_large);
  CHECK(too_large->status == 400);
  CHECK(too_large->param == "prompt");

  const std::vector<TokenId> ids(2'000'000, 'a');
  {
    TokenizerAnswer answer(room, model);
    REQUIRE(!answer.decode({.tokens = ids}));
    CHECK(room.bytes() >= 2'000'000);
    pieces = 0;
    CHECK(json::parse(all_pieces(answer, pieces))["prompt"] == std::string(2'000'000, 'a'));
    CHECK(pieces == 8);
  }
  CHECK(room.bytes() == 0);
  const auto too_long =
      TokenizerAnswer(room, model).decode({.tokens = std::vector<TokenId>(6'000'000, 'a')});
  REQUIRE(too_long);
  CHECK(too_long->status == 400);
  CHECK(too_long->param == "tokens");
  CHECK(TokenizerAnswer(room, model).decode({.tokens = {'a', 999}})->status == 400);
  CHECK(room.bytes() == 0);
}

TEST_CASE("the tokens of a chat, as ids and as strings") {
  Stand stand;
  const json chat = {{{"role", "user"}, {"content", "a\xC3\xA9"}}};
  json asked = {{"messages", chat}, {"return_token_strs", true}};
  const json tokens = stand.client().post("/tokenize", asked).json();
  CHECK(tokens["tokens"] == json({256, 'a', 0xC3, 0xA9}));
  CHECK(tokens["token_strs"] == json({"<s>", "a", "bytes:\\xc3", "bytes:\\xa9"}));
  CHECK(tokens["count"] == 4);
  CHECK(stand.client().post("/detokenize", {{"tokens", tokens["tokens"]}}).json()["prompt"] ==
        "<s>a\xC3\xA9");
  asked = {{"prompt", std::string(100'000, 'a')}, {"return_token_strs", true}};
  const json many = stand.client().post("/tokenize", asked).json();
  CHECK(many["token_strs"].size() == 100'001);
  CHECK(many["token_strs"].back() == "a");
  asked = {{"prompt", ""}, {"add_special_tokens", false}, {"return_token_strs", true}};
  CHECK(stand.client().post("/tokenize", asked).json()["token_strs"] == json::array());
  for (const auto& [field, value] : {std::pair<const char*, json>{"prompt", "a"},
                                     {"add_special_tokens", true},
                                     {"chat_template", "x"},
                                     {"continue_final_message", true},
                                     {"add_generation_promt", false}}) {
    const HttpResponse bad = stand.client().post("/tokenize", {{"messages", chat}, {field, value}});
    CAPTURE(field);
    CHECK(bad.status == 400);
  }
}

TEST_CASE("where a text is cut into pieces cannot be seen") {
  const ByteModel model;
  AnswerRoom room({});
  std::mt19937 random(5);
  const std::string parts[] = {
      "a",        "\xC3\xA9", "\xE4\xB8\x80", "\xF0\x9F\x98\x80", "\x80", "\xF0",
      "\xE4\xB8", "\"",       "\x01",         "\x80\x80\x80\x80"};
  for (int kind = 0; kind < 6; ++kind) {
    std::string text(static_cast<std::size_t>(kind), 'a');
    while (text.size() < 3 * limits::kHttpPieceBytes)
      text += kind < 3 ? parts[kind + 1] : parts[random() % std::size(parts)];
    std::vector<TokenId> ids;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    TokenizerAnswer answer(room, model);
    REQUIRE(!answer.decode({.tokens = ids}));
    std::string all;
    while (!answer.write_piece(all)) {
    }
    JsonWriter whole;
    whole.begin_object().member("prompt", text).end_object();
    CHECK(all == whole.text());
  }
}

TEST_CASE("large answers of the tokenizer over HTTP") {
  GatewayOptions options;
  options.answers = {.one_bytes_max = 2u << 20, .all_bytes_max = 3u << 20};
  Stand stand(std::move(options));
  HttpClient client = stand.client();
  const std::string text(300'000, 'a');
  for (int i = 0; i < 5; ++i) {  // What each takes is given back.
    HttpResponse answer = client.post("/tokenize", {{"prompt", text}});
    REQUIRE(answer.status == 200);
    CHECK(answer.headers["transfer-encoding"] == "chunked");
    const json tokens = answer.json()["tokens"];
    REQUIRE(tokens.size() == 300'001);
    answer = client.post("/detokenize", {{"tokens", tokens}});
    REQUIRE(answer.status == 200);
    CHECK(answer.json()["prompt"] == "<s>" + text);
  }
  CHECK(client.post("/tokenize", {{"prompt", text + text}}).json()["error"]["param"] == "prompt");
  CHECK(
      client.post("/tokenize", {{"prompt", ""}, {"add_special_tokens", false}}).json()["tokens"] ==
      json::array());
  CHECK(client.post("/detokenize", {{"tokens", json::array()}}).json()["prompt"] == "");
}

TEST_CASE("views that nobody reads keep out more of them, and nothing else") {
  Stand stand;
  stand.cluster.padding = 40u << 20;
  HttpClient deaf = stand.client();
  deaf.send("GET /cluster/status HTTP/1.1\r\nHost: localhost\r\n\r\n");
  REQUIRE(deaf.arrived());
  CHECK(stand.client().get("/cluster/status").status == 429);
  CHECK(stand.client().get("/metrics").status == 200);
  CHECK(stand.client().post("/v1/completions", {{"prompt", "a"}}).status == 200);
  CHECK(deaf.response().body.size() > 40u << 20);
  CHECK(stand.client().get("/cluster/status").status == 200);
}

}  // namespace
}  // namespace troupe::testing
