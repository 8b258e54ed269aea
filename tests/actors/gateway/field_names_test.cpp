// Fields that nobody knows: misspelt ones, and those of other servers.

#include <doctest/doctest.h>

#include <string>

#include "actors/gateway/api_request.h"

namespace troupe {
namespace {

const ModelFacts kFieldsModel{.served_model_name = "m", .has_tokenizer = true};

TEST_CASE("a misspelt field is told what was meant") {
  struct Misspelt {
    const char* field;
    const char* meant;
  };
  const Misspelt cases[] = {
      {"temperatur", "temperature"},
      {"temprature", "temperature"},
      {"Temperature", "temperature"},
      {"max_token", "max_tokens"},
      {"maxTokens", "max_tokens"},
      {"max-tokens", "max_tokens"},
      {"top_pp", "top_p"},
      {"topP", "top_p"},
      {"top_kk", "top_k"},
      {"stpo", "stop"},
      {"stops", "stop"},
      {"seeds", "seed"},
      {"modle", "model"},
      {"straem", "stream"},
      {"stream_option", "stream_options"},
      {"ignore_eso", "ignore_eos"},
      {"N", "n"},
      {"presense_penalty", "presence_penalty"},
      {"guided_jsn", "guided_json"},
      {"logit_biass", "logit_bias"},
      {"logprob", "logprobs"},
  };
  for (const Misspelt& c : cases) {
    CAPTURE(std::string(c.field));
    const std::string field = "\"" + std::string(c.field) + "\": 1}";
    const std::string sentence =
        "There is no field '" + std::string(c.field) + "'; did you mean '" + c.meant + "'?";
    ApiRequest out;
    for (const auto& error :
         {parse_completion(R"({"prompt": "a", )" + field, kFieldsModel, out),
          parse_chat(R"({"messages": [{"role": "user", "content": "x"}], )" + field, kFieldsModel,
                     out)}) {
      REQUIRE(error);
      CHECK(error->status == 400);
      CHECK(error->param == c.field);
      CHECK(error->message == sentence);
    }
  }
  ApiRequest out;
  CHECK(parse_completion(
            R"({"prompt": "a", "stream": true, "stream_options": {"include_usge": true}})",
            kFieldsModel, out)
            ->message.find("include_usage") != std::string::npos);
  TokenizeRequest tokenize;
  CHECK(parse_tokenize(R"({"prompt": "a", "add_special_token": false})", kFieldsModel, tokenize)
            ->param == "add_special_token");
}

TEST_CASE("the fields of other servers are no misspelt ones") {
  // OpenAI, vLLM, SGLang, llama.cpp, Ollama, OpenRouter, Mistral, DashScope; null asks for nothing.
  const char* const fields[] = {
      "audio",
      "functions",
      "function_call",
      "metadata",
      "modalities",
      "parallel_tool_calls",
      "prediction",
      "prompt_cache_key",
      "prompt_cache_retention",
      "safety_identifier",
      "service_tier",
      "store",
      "tool_choice",
      "tools",
      "user",
      "verbosity",
      "web_search_options",
      "priority",
      "request_id",
      "cache_salt",
      "spaces_between_special_tokens",
      "documents",
      "chat_template",
      "media_io_kwargs",
      "data_parallel_rank",
      "regex",
      "ebnf",
      "no_stop_trim",
      "stop_regex",
      "separate_reasoning",
      "stream_reasoning",
      "lora_path",
      "session_params",
      "return_hidden_states",
      "rid",
      "custom_params",
      "input_ids",
      "n_predict",
      "n_keep",
      "n_discard",
      "n_indent",
      "n_probs",
      "min_keep",
      "cache_prompt",
      "samplers",
      "top_n_sigma",
      "typical_p",
      "xtc_probability",
      "dry_base",
      "mirostat",
      "mirostat_tau",
      "dynatemp_range",
      "repeat_penalty",
      "repeat_last_n",
      "grammar",
      "json_schema",
      "id_slot",
      "timings_per_token",
      "return_progress",
      "post_sampling_probs",
      "response_fields",
      "lora",
      "return_tokens",
      "reasoning_format",
      "options",
      "keep_alive",
      "format",
      "think",
      "images",
      "raw",
      "system",
      "template",
      "context",
      "models",
      "route",
      "provider",
      "transforms",
      "plugins",
      "usage",
      "top_a",
      "top_n",
      "mode",
      "session_id",
      "random_seed",
      "safe_prompt",
      "prompt_mode",
      "enable_search",
      "incremental_output",
      "result_format",
      "max_new_tokens",
      "max_length",
      "stop_sequences",
      "x",
      "id",
      "tags",
      "role",
      "input",
      "do_sample",
      "best",
      "key",
  };
  for (const char* field : fields) {
    CAPTURE(std::string(field));
    ApiRequest out;
    const std::string rest = std::string("\"") + field + "\": ";
    const std::string chat = R"({"messages": [{"role": "user", "content": "x"}], )" + rest;
    for (const char* value : {"null}", "\"\"}", "1}"})
      for (const auto& error :
           {parse_completion(R"({"prompt": "a", )" + rest + value, kFieldsModel, out),
            parse_chat(chat + value, kFieldsModel, out)})
        if (error) CHECK(error->message.find("did you mean") == std::string::npos);
  }
}

TEST_CASE("only so many odd fields are looked at: comparing takes time") {
  for (const int odd : {63, 64}) {
    std::string body = R"({"prompt": "a")";
    for (int i = 0; i < odd; ++i) body += ", \"odd_" + std::to_string(i) + "\": 1";
    ApiRequest out;
    const auto error = parse_completion(body + R"(, "temperatur": 1})", kFieldsModel, out);
    CHECK(error.has_value() == (odd == 63));
  }
}

}  // namespace
}  // namespace troupe
