#include "actors/frontend/model_frontend.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "runtime/limits.h"

using namespace troupe;

namespace {

std::shared_ptr<const ModelFrontend> load(const std::string& folder,
                                          const std::function<void(EngineOptions&)>& change = {}) {
  EngineOptions options;
  options.model = std::string(TROUPE_SOURCE_DIR) + folder;
  if (change) change(options);
  return ModelFrontend::load(options).value();
}
std::shared_ptr<const ModelFrontend> demo() {
  static const auto frontend = load("/tools/demo/pocket-dictionary");
  return frontend;
}
std::shared_ptr<const ModelFrontend> ids_only() {
  static const auto frontend = load("/tests/golden/v3");
  return frontend;
}

GenerationRequest ids(std::size_t count) {
  GenerationRequest request;
  request.prompt = std::vector<TokenId>(count, 42);
  return request;
}
GenerationRequest chat(const std::string& text) {
  GenerationRequest request;
  request.prompt = std::vector<ChatMessage>{{"user", text}};
  return request;
}

}  // namespace

TEST_CASE("what a request leaves out comes from the checkpoint, then from OpenAI") {
  const PreparedRequest prepared = demo()->prepare(ids(3)).value();
  CHECK(prepared.sampling.temperature == 0.6f);
  CHECK(prepared.sampling.top_p == 0.95f);
  CHECK(prepared.sampling.top_k == 0);
  CHECK(prepared.sampling.repetition_penalty == 1.0f);
  CHECK(prepared.max_tokens == 16);
  CHECK(prepared.n == 1);
  CHECK(prepared.stop_tokens == std::vector<TokenId>{1});
  CHECK(prepared.timeout == std::chrono::seconds(600));
  CHECK(!prepared.seed);

  GenerationRequest request = ids(3);
  request.temperature = 0.0f;
  request.top_k = -1;
  request.ignore_eos = true;
  request.timeout_ms = 50;
  request.seed = 3;
  const PreparedRequest other = demo()->prepare(request).value();
  CHECK(other.sampling.temperature == 0.0f);
  CHECK(other.sampling.top_p == 0.95f);
  CHECK(other.sampling.top_k == 0);
  CHECK(other.stop_tokens.empty());
  CHECK(other.timeout == std::chrono::milliseconds(50));
  CHECK(other.seed == 3);
}

TEST_CASE("the engine's seed holds for requests without one") {
  const auto frontend =
      load("/tools/demo/pocket-dictionary", [](EngineOptions& options) { options.seed = 11; });
  CHECK(frontend->prepare(ids(3)).value().seed == 11);
}

TEST_CASE("a text that cannot fit is refused before it is tokenised") {
  const Tokenizer& tokenizer = *demo()->tokenizer();
  const auto most = static_cast<std::size_t>(demo()->max_model_len());
  std::size_t bytes = 0;
  while (tokenizer.tokens_at_least(bytes) <= most) bytes += 100;
  GenerationRequest text;
  text.prompt = std::string(bytes, 'a');
  const std::string told = demo()->prepare(text).error().message;
  CHECK(told.find("prompt: has at least " + std::to_string(tokenizer.tokens_at_least(bytes)) +
                  " tokens") == 0);
  CHECK(demo()->prepare(chat(std::string(bytes, 'a'))).error().message.find("at least") !=
        std::string::npos);
  CHECK(demo()->tokenize(std::string(bytes, 'a'), false).ok());
}

TEST_CASE("a text prompt gets its BOS, a chat has it already, ids stay as they are") {
  GenerationRequest text;
  text.prompt = "hello";
  const auto prompt = demo()->prepare(text).value().prompt;
  const auto plain = demo()->tokenize("hello", false).value();
  REQUIRE(prompt.size() == plain.size() + 1);
  CHECK(prompt[0] == 0);
  CHECK(demo()->prepare(ids(2)).value().prompt == std::vector<TokenId>{42, 42});

  const PreparedRequest talk = demo()->prepare(chat("lamp")).value();
  const std::string rendered = demo()->detokenize(talk.prompt).value();
  CHECK(rendered == "<｜begin▁of▁sentence｜><｜User｜>lamp<｜Assistant｜><think>\n");
  CHECK(std::count(talk.prompt.begin(), talk.prompt.end(), 0) == 1);
}

TEST_CASE("an answer may use what is left of the context") {
  CHECK(demo()->prepare(chat("lamp")).value().max_tokens ==
        4096 - demo()->prepare(chat("lamp")).value().prompt.size());
  CHECK(demo()->prepare(ids(4090)).value().max_tokens == 6);
  GenerationRequest request = chat("lamp");
  request.max_tokens = 1'000'000;
  CHECK(demo()->prepare(request).value().max_tokens < 4096);
  request.max_tokens = 5;
  CHECK(demo()->prepare(request).value().max_tokens == 5);
  const auto shorter =
      load("/tools/demo/pocket-dictionary", [](EngineOptions& o) { o.max_model_len = 20; });
  CHECK(shorter->prepare(ids(10)).value().max_tokens == 10);
  CHECK(shorter->prepare(ids(19)).value().max_tokens == 1);
  const auto full = shorter->prepare(ids(20));
  REQUIRE(!full.ok());
  CHECK(full.error().code == ErrorCode::kInvalidArgument);
  CHECK(full.error().message.starts_with("prompt: "));
}

TEST_CASE("a prompt may be scored without generating") {
  GenerationRequest request = ids(4096);
  request.max_tokens = 0;
  CHECK(!demo()->prepare(request).ok());
  request.prompt_logprobs = 0;
  CHECK(demo()->prepare(request).value().max_tokens == 0);
  request.prompt = std::vector<TokenId>(4097, 42);
  CHECK(!demo()->prepare(request).ok());
}

TEST_CASE("every bad field is named") {
  using Change = std::function<void(GenerationRequest&)>;
  const std::pair<std::string, Change> cases[] = {
      {"temperature", [](auto& r) { r.temperature = -0.1f; }},
      {"temperature", [](auto& r) { r.temperature = NAN; }},
      {"temperature", [](auto& r) { r.temperature = INFINITY; }},
      {"top_p", [](auto& r) { r.top_p = 0.0f; }},
      {"top_p", [](auto& r) { r.top_p = 1.1f; }},
      {"top_p", [](auto& r) { r.top_p = NAN; }},
      {"top_k", [](auto& r) { r.top_k = -2; }},
      {"min_p", [](auto& r) { r.min_p = -0.1f; }},
      {"min_p", [](auto& r) { r.min_p = 1.1f; }},
      {"repetition_penalty", [](auto& r) { r.repetition_penalty = 0.0f; }},
      {"repetition_penalty", [](auto& r) { r.repetition_penalty = NAN; }},
      {"presence_penalty", [](auto& r) { r.presence_penalty = 2.1f; }},
      {"frequency_penalty", [](auto& r) { r.frequency_penalty = -2.1f; }},
      {"n", [](auto& r) { r.n = 0; }},
      {"n", [](auto& r) { r.n = limits::kChoicesMax + 1; }},
      {"logprobs", [](auto& r) { r.logprobs = limits::kTopLogprobsMax + 1; }},
      {"logprobs", [](auto& r) { r.logprobs = -2; }},
      {"prompt_logprobs", [](auto& r) { r.prompt_logprobs = limits::kTopLogprobsMax + 1; }},
      {"stop", [](auto& r) { r.stop.resize(limits::kStopStringsMax + 1, "x"); }},
      {"stop", [](auto& r) { r.stop = {""}; }},
      {"stop", [](auto& r) { r.stop = {std::string(limits::kStopStringBytesMax + 1, 'x')}; }},
      {"stop", [](auto& r) { r.stop = {"\xff"}; }},
      {"max_tokens", [](auto& r) { r.max_tokens = 0; }},
      {"timeout_ms", [](auto& r) { r.timeout_ms = 0; }},
      {"prompt", [](auto& r) { r.prompt = std::vector<TokenId>{}; }},
      {"prompt", [](auto& r) { r.prompt = std::vector<TokenId>{4096}; }},
      {"prompt", [](auto& r) { r.prompt = std::vector<TokenId>{-1}; }},
      {"messages", [](auto& r) { r.prompt = std::vector<ChatMessage>{}; }},
      {"messages",
       [](auto& r) {
         r.prompt = std::vector<ChatMessage>{{"wizard", "hi"}};
       }},
      {"chat_template_kwargs",
       [](auto& r) {
         r.prompt = std::vector<ChatMessage>{{"user", "hi"}};
         r.chat_template_kwargs = R"({"messages": []})";
       }},
  };
  for (const auto& [field, change] : cases) {
    CAPTURE(field);
    GenerationRequest request = ids(3);
    change(request);
    const auto prepared = demo()->prepare(request);
    REQUIRE(!prepared.ok());
    CHECK(prepared.error().code == ErrorCode::kInvalidArgument);
    CHECK(prepared.error().message.substr(0, field.size()) == field);
    const char next = prepared.error().message[field.size()];
    CHECK((next == ':' || next == '['));
  }
}

TEST_CASE("the bounds themselves are allowed") {
  GenerationRequest request = ids(3);
  request.temperature = 1e-30f;
  request.top_p = 1.0f;
  request.min_p = 1.0f;
  request.presence_penalty = -2.0f;
  request.frequency_penalty = 2.0f;
  request.n = limits::kChoicesMax;
  request.logprobs = limits::kTopLogprobsMax;
  request.top_k = 1 << 30;
  request.stop.resize(limits::kStopStringsMax, std::string(limits::kStopStringBytesMax, 'x'));
  const PreparedRequest prepared = demo()->prepare(request).value();
  CHECK(prepared.sampling.top_k == 4096);
  CHECK(prepared.sampling.temperature == 0.01f);
}

TEST_CASE("a checkpoint without a tokenizer takes ids and says so otherwise") {
  CHECK(ids_only()->prepare(ids(3)).ok());
  CHECK(!ids_only()->tokenizer());
  GenerationRequest text;
  text.prompt = "hello";
  CHECK(ids_only()->prepare(text).error().message.starts_with("prompt: "));
  CHECK(ids_only()->prepare(chat("hello")).error().message.starts_with("messages: "));
  GenerationRequest stop = ids(3);
  stop.stop = {"x"};
  CHECK(ids_only()->prepare(stop).error().message.starts_with("stop: "));
  CHECK(!ids_only()->detokenize(std::vector<TokenId>{1}).ok());
}

TEST_CASE("do_sample false makes greedy the default, which a request may change") {
  ModelFrontend::Parts parts;
  parts.spec.vocab = ids_only()->vocab_size();
  parts.generation = parse_generation_config(R"({"do_sample": false})", "test").value();
  parts.max_model_len = 64;
  const ModelFrontend frontend(std::move(parts));
  CHECK(frontend.prepare(ids(3)).value().sampling.temperature == 0.0f);
  GenerationRequest request = ids(3);
  request.temperature = 0.5f;
  CHECK(frontend.prepare(request).value().sampling.temperature == 0.5f);
}

TEST_CASE("generation_config.json's end tokens win over config.json's") {
  ModelFrontend::Parts parts;
  parts.spec.vocab = ids_only()->vocab_size();
  parts.spec.eos_token_ids = {5};
  parts.max_model_len = 64;
  CHECK(ModelFrontend(parts).eos_tokens() == std::vector<TokenId>{5});
  parts.generation.eos_token_ids = {6, 7};
  CHECK(ModelFrontend(parts).prepare(ids(3)).value().stop_tokens == std::vector<TokenId>{6, 7});
}

TEST_CASE("the name and the context's length come from the options, else from the checkpoint") {
  CHECK(demo()->served_model_name() == "pocket-dictionary");
  CHECK(load("/tools/demo/pocket-dictionary/")->served_model_name() == "pocket-dictionary");
  CHECK(demo()->max_model_len() == 4096);
  const auto named = load("/tools/demo/pocket-dictionary",
                          [](EngineOptions& o) { o.served_model_name = "words"; });
  CHECK(named->served_model_name() == "words");
  EngineOptions options;
  options.model = TROUPE_SOURCE_DIR "/tools/demo/pocket-dictionary";
  options.max_model_len = 5000;
  const auto too_long = ModelFrontend::load(options);
  REQUIRE(!too_long.ok());
  CHECK(too_long.error().message.find("--max-model-len") != std::string::npos);
}
