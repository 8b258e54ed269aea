#include "actors/frontend/model_frontend.h"

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "model/spec/read_spec.h"
#include "runtime/key_share.h"
#include "runtime/limits.h"
#include "tests/model/model_folder.h"
#include "tests/source_path.h"

using namespace troupe;

namespace {

std::shared_ptr<const ModelFrontend> load(const std::string& folder,
                                          const std::function<void(EngineOptions&)>& change = {}) {
  EngineOptions options;
  options.model = testing::source_path(folder);
  if (change) change(options);
  return ModelFrontend::load(options).value();
}
std::shared_ptr<const ModelFrontend> demo() {
  static const auto frontend = load("tools/demo/pocket-dictionary");
  return frontend;
}
std::shared_ptr<const ModelFrontend> ids_only() {
  static const auto frontend = load("tests/golden/v3");
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
      load("tools/demo/pocket-dictionary", [](EngineOptions& options) { options.seed = 11; });
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

TEST_CASE("with tools the prompt tells of them, and the answer's text keeps their tags") {
  ChatTemplateFile file;
  file.text =
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}"
      "{% for c in m.tool_calls or [] %}{{ '<｜tool▁calls▁begin｜>' + c.function.arguments }}"
      "{% endfor %}{% endfor %}";
  ModelFrontend::Parts parts;
  parts.spec = load_model_spec(testing::source_path("tools/demo/pocket-dictionary")).value();
  parts.tokenizer = demo()->tokenizer();
  parts.chat = ChatFormat::make(file);
  parts.max_model_len = 4096;
  const ModelFrontend frontend(std::move(parts));
  GenerationRequest request = chat("x");
  CHECK(frontend.prepare(request).value().keep_special.empty());
  request.tools = R"([{"type": "function", "function": {"name": "look_up"}}])";
  const PreparedRequest prepared = frontend.prepare(request).value();
  CHECK(prepared.keep_special == std::vector<TokenId>{7, 8, 9, 10, 11});
  CHECK(frontend.detokenize(prepared.prompt).value().find("### look_up") != std::string::npos);
  request.tools = "[";
  CHECK(frontend.prepare(request).error().message.starts_with("tools"));
}

TEST_CASE("an answer may use what is left of the context") {
  CHECK(demo()->prepare(chat("lamp")).value().max_tokens ==
        4096 - demo()->prepare(chat("lamp")).value().prompt.size());
  CHECK(demo()->prepare(ids(4090)).value().max_tokens == 6);
  GenerationRequest request = chat("lamp");
  const auto left = static_cast<std::uint32_t>(demo()->prepare(request).value().max_tokens);
  request.max_tokens = left;
  CHECK(demo()->prepare(request).value().max_tokens == left);
  request.max_tokens = left + 1;
  const auto beyond = demo()->prepare(request);
  REQUIRE(!beyond.ok());
  CHECK(beyond.error().code == ErrorCode::kInvalidArgument);
  CHECK(beyond.error().message == "max_tokens: is " + std::to_string(left + 1) +
                                      ", and the prompt has " + std::to_string(4096 - left) +
                                      " tokens; the context holds 4096, answer included: at "
                                      "most " +
                                      std::to_string(left) + " are left.");
  request.max_tokens = 5;
  CHECK(demo()->prepare(request).value().max_tokens == 5);
  const auto shorter =
      load("tools/demo/pocket-dictionary", [](EngineOptions& o) { o.max_model_len = 20; });
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
      {"priority", [](auto& r) { r.priority = kPriorityMax + 1; }},
      {"priority", [](auto& r) { r.priority = -kPriorityMax - 1; }},
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
  parts.generation = parse_generation_config(R"({"do_sample": false})", "test");
  parts.max_model_len = 64;
  const ModelFrontend frontend(std::move(parts));
  CHECK(frontend.prepare(ids(3)).value().sampling.temperature == 0.0f);
  GenerationRequest request = ids(3);
  request.temperature = 0.5f;
  CHECK(frontend.prepare(request).value().sampling.temperature == 0.5f);
}

TEST_CASE("defaults that no request could ask for are left out, with a sentence each") {
  const testing::ModelFolder folder(testing::source_path("tests/golden/v2-lite"));
  const auto loaded = [&](const char* text) {
    std::ofstream(folder / "generation_config.json") << text;
    EngineOptions options;
    options.model = folder.string();
    return ModelFrontend::load(options).value();
  };
  const auto taken = loaded(R"({"top_k": -1, "top_p": 1, "temperature": 0, "min_p": 0})");
  CHECK(taken->left_out().empty());
  CHECK(taken->prepare(ids(3)).value().sampling.top_k == 0);
  CHECK(loaded(R"({"top_k": 50.0})")->prepare(ids(3)).value().sampling.top_k == 50);
  const auto wrong = loaded(R"({"top_p": 0, "temperature": -1, "top_k": -2, "min_p": 1.5,
                                "repetition_penalty": 0, "do_sample": "yes"})");
  const SamplingParams sampling = wrong->prepare(ids(3)).value().sampling;
  CHECK(sampling.temperature == 1.0f);
  CHECK(sampling.top_p == 1.0f);
  CHECK(sampling.top_k == 0);
  CHECK(sampling.min_p == 0.0f);
  CHECK(sampling.repetition_penalty == 1.0f);
  REQUIRE(wrong->left_out().size() == 6);
  CHECK(wrong->left_out().back().find("generation_config.json: repetition_penalty: must be") !=
        std::string::npos);
}

TEST_CASE("the name and the context's length come from the options, else from the checkpoint") {
  CHECK(demo()->served_model_name() == "pocket-dictionary");
  CHECK(load("tools/demo/pocket-dictionary/")->served_model_name() == "pocket-dictionary");
  CHECK(demo()->max_model_len() == 4096);
  const auto named =
      load("tools/demo/pocket-dictionary", [](EngineOptions& o) { o.served_model_name = "words"; });
  CHECK(named->served_model_name() == "words");
  const testing::TemporaryFolder cache;
  const auto snapshots = cache / "models--org--Words-7B" / "snapshots";
  std::filesystem::create_directories(snapshots);
  std::filesystem::create_directory_symlink(testing::source_path("tools/demo/pocket-dictionary"),
                                            snapshots / "0123abc");
  const auto cached = load("tools/demo/pocket-dictionary",
                           [&](EngineOptions& o) { o.model = (snapshots / "0123abc").string(); });
  CHECK(cached->served_model_name() == "Words-7B");
  EngineOptions options;
  options.model = testing::source_path("tools/demo/pocket-dictionary");
  options.max_model_len = 5000;
  const auto too_long = ModelFrontend::load(options);
  REQUIRE(!too_long.ok());
  CHECK(too_long.error().message.find("--max-model-len") != std::string::npos);
}

TEST_CASE("rules for an answer's tokens arrive, and bad ones are named") {
  GenerationRequest request = chat("hello");
  CHECK(demo()->prepare(request)->sampling.rules == nullptr);
  request.min_tokens = 3;
  request.stop_token_ids = {7, 1};
  request.allowed_token_ids = {9, 5, 9};
  request.bad_words = {"river"};
  request.logit_bias = {{8, 1}, {2, -1}};
  const PreparedRequest prepared = demo()->prepare(request).value();
  REQUIRE(prepared.sampling.rules);
  const TokenRules& rules = *prepared.sampling.rules;
  CHECK(rules.min_tokens == 3);
  CHECK(rules.end_tokens == std::vector<TokenId>{1, 7});
  CHECK(prepared.stop_tokens == rules.end_tokens);
  CHECK(rules.allowed == std::vector<TokenId>{5, 9});
  CHECK(rules.bias == std::vector<TokenBias>{{2, -1}, {8, 1}});
  CHECK(!rules.banned.empty());

  const std::pair<std::string, std::function<void(GenerationRequest&)>> wrong[] = {
      {"min_tokens", [](auto& r) { r.max_tokens = 2, r.min_tokens = 3; }},
      {"stop_token_ids", [](auto& r) { r.stop_token_ids = {-1}; }},
      {"allowed_token_ids", [](auto& r) { r.allowed_token_ids = {1 << 20}; }},
      {"bad_words", [](auto& r) { r.bad_words = {""}; }},
      {"logit_bias",
       [](auto& r) {
         r.logit_bias = {{1 << 20, 1}};
       }},
      {"logit_bias",
       [](auto& r) {
         r.logit_bias = {{1, 1}, {1, 2}};
       }},
      {"logit_bias",
       [](auto& r) {
         r.logit_bias = {{1, 101}};
       }},
      {"logit_bias",
       [](auto& r) {
         r.logit_bias = {{1, NAN}};
       }},
      {"grammar", [](auto& r) { r.grammar = "root ::= nowhere"; }},
      {"grammar", [](auto& r) { r.grammar = std::string((1 << 20) + 1, ' '); }},
  };
  for (const auto& [field, change] : wrong) {
    CAPTURE(field);
    GenerationRequest bad = chat("hello");
    change(bad);
    const auto refused = demo()->prepare(bad);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().code == ErrorCode::kInvalidArgument);
    CHECK(refused.error().message.starts_with(field + ": "));
  }
  GenerationRequest without_text = ids(3);
  without_text.grammar = "root ::= [a-z]";
  CHECK_FALSE(ids_only()->prepare(without_text).ok());
}

TEST_CASE("a chat's grammar begins after the thought, a completion's at once") {
  GenerationRequest request = chat("hello");
  request.grammar = "root ::= [a-z]+";
  const auto of_chat = demo()->prepare(request).value().sampling.rules;
  CHECK(of_chat->grammar == request.grammar);
  CHECK(of_chat->grammar_after == std::vector<std::string>{"</think>"});
  request.grammar_in_thought = true;
  const auto of_thought = demo()->prepare(request).value().sampling.rules;
  CHECK(of_thought->grammar_after.empty());
  CHECK(of_thought->thought_token == -1);
  request.grammar_in_thought = false;
  request.prompt = std::string("hello");
  CHECK(demo()->prepare(request).value().sampling.rules->grammar_after.empty());
}

TEST_CASE("a grammar of calls may begin within the thought") {
  const std::string demo_folder = testing::source_path("tools/demo/pocket-dictionary/");
  const testing::TemporaryFolder folder;
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json"})
    std::filesystem::copy_file(demo_folder + name, folder / name);
  std::ofstream(folder / "chat_template.jinja")
      << "{{ messages[0]['content'] }}{% if tools %}<｜tool▁calls▁begin｜>{% endif %}<think>";
  const auto frontend = load("", [&](EngineOptions& o) { o.model = folder.string(); });
  const TokenId begin = frontend->tokenizer()->added_token_id("<｜tool▁calls▁begin｜>").value();
  GenerationRequest request = chat("hello");
  request.grammar = "root ::= <[" + std::to_string(begin) + "]>";
  CHECK(frontend->prepare(request).value().sampling.rules->grammar_token == -1);
  request.grammar_of_calls = true;
  const auto rules = frontend->prepare(request).value().sampling.rules;
  CHECK(rules->grammar_token == begin);
  CHECK(rules->grammar_after == std::vector<std::string>{"</think>"});
}

namespace {

/// The prompt that the demo model is given for this chat.
Result<std::string> prompt_of(std::vector<ChatMessage> chat, bool continued = true) {
  GenerationRequest request;
  request.prompt = std::move(chat);
  request.continue_final_message = continued;
  request.add_generation_prompt = false;
  const auto prepared = demo()->prepare(request);
  if (!prepared.ok()) return prepared.error();
  return demo()->detokenize(prepared->prompt);
}

}  // namespace

TEST_CASE("a chat's last message goes on where it ends") {
  const std::string begin = demo()->detokenize(std::vector<TokenId>{0}).value() + "<｜User｜>lamp";
  const std::string answer = "<｜Assistant｜>";
  const ChatMessage asks{"user", "lamp"};
  CHECK(*prompt_of({asks}, false) == begin);
  CHECK(*prompt_of({asks, {"assistant", "a device"}}) == begin + answer + "a device");
  CHECK(*prompt_of({asks, {"assistant", "a device "}}) == begin + answer + "a device ");
  CHECK(*prompt_of({asks, {"assistant", ""}}) == begin + answer);
  CHECK(*prompt_of({asks, {"assistant", "<think>\nhm"}}) == begin + answer + "<think>\nhm");
  // What is said of its end elsewhere moves nothing.
  const std::string mark = "THE_LAST_MESSAGE_GOES_ON_HERE ";
  CHECK(*prompt_of({{"user", mark}, {"assistant", mark + "x"}}) ==
        demo()->detokenize(std::vector<TokenId>{0}).value() + "<｜User｜>" + mark + answer + mark +
            "x");
  ChatMessage thought{"assistant", ""};
  thought.reasoning_content = "hm";
  CHECK(*prompt_of({asks, thought}) == begin + answer + "<think>\nhm");
  thought.content = "a";
  CHECK(*prompt_of({asks, thought}) == begin + answer + "<think>\nhm</think>a");

  ChatMessage calls{"assistant", "x"};
  calls.tool_calls = {{"1", "f", "{}"}};
  for (const auto& last : {asks, calls}) {
    const auto refused = prompt_of({asks, last});
    REQUIRE(!refused.ok());
    CHECK(refused.error().code == ErrorCode::kInvalidArgument);
    CHECK(refused.error().message.starts_with("messages"));
  }
}

TEST_CASE("a prompt is truncated from its beginning") {
  GenerationRequest request;
  request.prompt = std::vector<TokenId>{2, 3, 4, 5, 6};
  const auto kept = [&](std::int64_t tokens) {
    request.truncate_prompt_tokens = tokens;
    return demo()->prepare(request).value().prompt;
  };
  CHECK(kept(2) == std::vector<TokenId>{5, 6});
  CHECK(kept(5).size() == 5);
  CHECK(kept(1'000'000'000'000).size() == 5);
  CHECK(kept(-1).size() == 5);
  request.truncate_prompt_tokens = -2;
  CHECK(demo()->prepare(request).error().message.starts_with("truncate_prompt_tokens"));

  // More than the context holds: refused, or cut to what leaves room for the answer.
  std::string text;
  for (int i = 0; i < 30'000; ++i) text += "river ";
  request.prompt = text;
  request.truncate_prompt_tokens = 0;
  CHECK(!demo()->prepare(request).ok());
  const auto all = static_cast<std::size_t>(demo()->max_model_len());
  CHECK(kept(-1).size() == all - 16);
  request.max_tokens = 100;
  CHECK(kept(-1).size() == all - 100);
  CHECK(kept(7).size() == 7);
  request.prompt = std::vector<ChatMessage>{{"user", text}};
  request.max_tokens.reset();
  CHECK(kept(-1).size() == all - 1);
}
