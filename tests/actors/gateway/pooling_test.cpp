#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "actors/gateway/answer.h"
#include "actors/gateway/pooling_request.h"
#include "actors/gateway/request_form.h"
#include "runtime/limits.h"
#include "tests/actors/gateway/fakes.h"

namespace troupe {
namespace {

using nlohmann::json;
using testing::ByteModel;

const ModelFacts kFacts{.served_model_name = "bytes"};

ApiRequest embeddings(const std::string& body) {
  ApiRequest request;
  const auto error = parse_embeddings(body, kFacts, request);
  REQUIRE_FALSE(error);
  return request;
}

ApiRequest pooling(const std::string& body) {
  ApiRequest request;
  const auto error = parse_pooling(body, kFacts, request);
  REQUIRE_FALSE(error);
  return request;
}

GenerationEvent hidden(std::vector<float> values, std::size_t tokens = 2) {
  GenerationEvent event;
  event.prompt_tokens.assign(tokens, 'p');
  event.hidden = std::move(values);
  event.finish = FinishReason::kLength;
  event.request_done = true;
  return event;
}

json answer_to(const ApiRequest& request, std::vector<GenerationEvent> events) {
  const ByteModel model;
  Answer answer(request, model, "embd-1", 7);
  std::string none, text;
  for (std::size_t i = 0; i < events.size(); ++i) answer.add(i, std::move(events[i]), none);
  REQUIRE(answer.complete());
  while (!answer.write_piece(text)) {
  }
  CHECK(none.empty());
  return json::parse(text);
}

TEST_CASE("a bad field of a request for hidden states is named") {
  struct Bad {
    const char* body;
    const char* param;
  };
  const Bad both[] = {
      {R"({})", "input"},
      {R"({"input": null})", "input"},
      {R"({"input": []})", "input"},
      {R"({"input": [[]]})", "input"},
      {R"({"input": 5})", "input"},
      {R"({"input": {"text": "a"}})", "input"},
      {R"({"input": [1, "a"]})", "input"},
      {R"({"input": [-1]})", "input"},
      {R"({"input": "a", "dimensions": 8})", "dimensions"},
      {R"({"input": "a", "encoding_format": "bytes"})", "encoding_format"},
      {R"({"input": "a", "encoding_format": 1})", "encoding_format"},
      {R"({"input": "a", "embed_dtype": "float16"})", "embed_dtype"},
      {R"({"input": "a", "endianness": "big"})", "endianness"},
      {R"({"input": "a", "truncation_side": "right"})", "truncation_side"},
      {R"({"input": "a", "truncate_prompt_tokens": 0})", "truncate_prompt_tokens"},
      {R"({"input": "a", "truncate_prompt_tokens": -2})", "truncate_prompt_tokens"},
      {R"({"input": "a", "normalize": 1})", "normalize"},
      {R"({"input": "a", "user": 3})", "user"},
      {R"({"input": "a", "priority": 1e9})", "priority"},
      {R"({"messages": [{"role": "user", "content": "a"}]})", "messages"},
      {R"({"inputs": "a", "input": "a"})", "inputs"},
  };
  for (const auto& [body, param] : both) {
    CAPTURE(body);
    for (const auto parse : {parse_embeddings, parse_pooling}) {
      ApiRequest request;
      const auto error = parse(body, kFacts, request);
      REQUIRE(error);
      CHECK(error->status == 400);
      CHECK(error->param == param);
    }
  }
  ApiRequest request;
  CHECK(parse_pooling(R"({"input": "a", "task": "classify"})", kFacts, request)->param == "task");
  CHECK(parse_embeddings(R"({"input": "a", "model": "x"})", kFacts, request)->status == 404);
  json many{{"input", json::array()}};
  for (std::size_t i = 0; i < limits::kPromptsMax; ++i) many["input"].push_back("a");
  CHECK(embeddings(many.dump()).prompts.size() == limits::kPromptsMax);
  many["input"].push_back("a");
  CHECK(parse_embeddings(many.dump(), kFacts, request)->param == "input");
}

TEST_CASE("the fields of a request for hidden states arrive") {
  const ApiRequest plain = embeddings(R"({"input": "a"})");
  CHECK(plain.pooled->embedding);
  CHECK(plain.pooled->normalize);
  CHECK_FALSE(plain.pooled->base64);
  CHECK(plain.prompts.at(0).pooling == Pooling::kLast);
  CHECK(plain.prompts.at(0).add_special_tokens);
  const ApiRequest set = embeddings(
      R"({"input": [[1, 2], [3]], "encoding_format": "base64", "normalize": false, "user": "u",
          "model": "bytes", "add_special_tokens": false, "truncate_prompt_tokens": 1,
          "priority": -2, "endianness": "little", "embed_dtype": "float32"})");
  REQUIRE(set.prompts.size() == 2);
  CHECK(std::get<std::vector<TokenId>>(set.prompts[1].prompt) == std::vector<TokenId>{3});
  CHECK(set.prompts[1].truncate_prompt_tokens == 1);
  CHECK(set.prompts[1].priority == -2);
  CHECK_FALSE(set.prompts[1].add_special_tokens);
  CHECK(set.pooled->base64);
  CHECK_FALSE(set.pooled->normalize);
  const ApiRequest tokens = pooling(R"({"input": "a", "use_activation": false})");
  CHECK(tokens.prompts[0].pooling == Pooling::kAll);
  CHECK_FALSE(tokens.pooled->embedding);
  CHECK_FALSE(tokens.pooled->normalize);
  CHECK(pooling(R"({"input": "a", "task": "embed"})").prompts[0].pooling == Pooling::kLast);
}

TEST_CASE("embeddings have OpenAI's form") {
  const json answer =
      answer_to(embeddings(R"({"input": ["a", "b"]})"), {hidden({3, -4}), hidden({0, 0}, 5)});
  CHECK(answer["object"] == "list");
  CHECK(answer["id"] == "embd-1");
  CHECK(answer["model"] == "bytes");
  CHECK(answer["data"] == json::parse(R"([{"index": 0, "object": "embedding",
                                           "embedding": [0.6, -0.8]},
                                          {"index": 1, "object": "embedding",
                                           "embedding": [0, 0]}])"));
  CHECK(answer["usage"]["prompt_tokens"] == 7);
  CHECK(answer["usage"]["total_tokens"] == 7);
  CHECK_FALSE(answer.contains("choices"));
}

TEST_CASE("pooling gives each token's hidden state") {
  const json answer = answer_to(pooling(R"({"input": "a", "normalize": false})"),
                                {hidden({1, 2, 3, 4, 5, 6}, 3)});
  CHECK(answer["data"] ==
        json::parse(R"([{"index": 0, "object": "pooling", "data": [[1, 2], [3, 4], [5, 6]]}])"));
  const json each = answer_to(pooling(R"({"input": "a"})"), {hidden({3, 4, 0, -5}, 2)});
  CHECK(each["data"][0]["data"].dump() == "[[0.6,0.8],[0.0,-1.0]]");
}

TEST_CASE("base64 holds the numbers as float32") {
  const std::vector<float> values{0.1f, -2.5f, 1e-30f};
  const json answer = answer_to(
      embeddings(R"({"input": "a", "encoding_format": "base64", "normalize": false})"),
      {hidden(values)});
  CHECK(answer["data"][0]["embedding"] == "zczMPQAAIMBgQqIN");
}

TEST_CASE("a long list comes in pieces") {
  const ByteModel model;
  const std::size_t tokens = 3 * limits::kHttpPieceBytes / 100;
  Answer answer(pooling(R"({"input": "a"})"), model, "pool-1", 7);
  std::string none, text;
  answer.add(0, hidden(std::vector<float>(100 * tokens, 0.125f), tokens), none);
  int pieces = 0;
  for (bool last = false; !last; ++pieces) {
    const std::size_t before = text.size();
    last = answer.write_piece(text);
    CHECK(text.size() - before < limits::kHttpPieceBytes + 4096);
  }
  CHECK(pieces > 3);
  const json whole = json::parse(text);
  CHECK(whole["data"][0]["data"].size() == tokens);
  CHECK(whole["data"][0]["data"][tokens - 1].size() == 100);
}

TEST_CASE("the form of a request for hidden states survives, and a wrong one is refused") {
  for (const char* body : {R"({"input": ["a", "b"], "encoding_format": "base64"})",
                           R"({"input": [1, 2], "normalize": false})"}) {
    for (const ApiRequest& request : {embeddings(body), pooling(body)}) {
      std::vector<std::shared_ptr<const RequestName>> names;
      for (std::size_t i = 0; i < request.prompts.size(); ++i)
        names.push_back(
            std::make_shared<const RequestName>(RequestName{.form = write_form(request, i)}));
      const Result<ApiRequest> read = read_forms(names, 100);
      REQUIRE(read.ok());
      REQUIRE(read->pooled);
      CHECK(read->pooled->embedding == request.pooled->embedding);
      CHECK(read->pooled->base64 == request.pooled->base64);
      CHECK(read->pooled->normalize == request.pooled->normalize);
      CHECK(read->prompts.size() == request.prompts.size());
      CHECK(read->prompts[0].pooling == request.prompts[0].pooling);
    }
  }
  for (const char* form : {R"({"n": 1, "pooled": 5})", R"({"n": 1, "pooled": {"all": 1}})"})
    CHECK_FALSE(read_forms({std::make_shared<const RequestName>(RequestName{.form = form})}, 100));
}

}  // namespace
}  // namespace troupe
