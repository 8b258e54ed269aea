#include "actors/gateway/request_form.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "actors/gateway/field_reader.h"
#include "actors/gateway/json_body.h"
#include "actors/gateway/json_writer.h"
#include "model/chat/reasoning_name.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

using nlohmann::json;

/// How calls are read: the tools' names, each with its arguments that are texts.
void write_calls(JsonWriter& json, const ApiRequest::Calls& calls) {
  json.key("calls").begin_object().member("list", calls.list).member("several", calls.several);
  if (calls.old) json.member("old", true);
  json.key("tools").begin_object();
  for (const auto& [name, texts] : calls.sketch) {
    json.key(name).begin_array();
    for (const std::string& text : texts) json.value(text);
    json.end_array();
  }
  json.end_object().end_object();
}

void read_calls(FieldReader& fields, ApiRequest::Calls& calls) {
  const json* value = fields.find("calls");
  if (value == nullptr) return;
  const json tools = value->is_object() ? value->value("tools", json()) : json();
  if (!tools.is_object() || tools.size() > limits::kToolsMax)
    return fields.fail("calls", "calls must have an object of tools.");
  calls.read = true;
  for (const auto& [name, texts] : tools.items()) {
    const auto is_text = [](const json& text) { return text.is_string(); };
    if (!texts.is_array() || !std::ranges::all_of(texts, is_text))
      return fields.fail("calls", "calls must have tools with lists of texts.");
    calls.sketch[name] = texts.get<std::set<std::string>>();
  }
  FieldReader inner(*value);
  inner.boolean("list", calls.list);
  inner.boolean("several", calls.several);
  inner.boolean("old", calls.old);
  if (inner.failed()) fields.fail("calls", inner.error()->message);
}

constexpr std::string_view kStarts[] = {"open", "thought", "content"};

/// Where a chat's answer begins.
void write_start(JsonWriter& json, const ReasoningStart& start) {
  if (start.style == ReasoningStyle::kNone) return;
  json.member("thoughts", to_string(start.style));
  json.member("start", kStarts[start.inside ? 1 : start.over ? 2 : 0]);
}

void read_start(FieldReader& fields, ReasoningStart& start) {
  std::string style, at(kStarts[0]);
  fields.text("thoughts", style);
  fields.text("start", at);
  start = {parse_reasoning_style(style), at == kStarts[1], at == kStarts[2]};
  if (std::ranges::find(kStarts, at) == std::end(kStarts))
    fields.fail("start", "start must be open, thought or content.");
}

/// Both are texts, so that a form is no deeper than a body may be.
void write_response(JsonWriter& json, const ApiRequest::Response& response) {
  json.key("response").begin_object().member("echo", response.echo);
  if (!response.messages.empty()) json.member("messages", response.messages);
  json.end_object();
}

void read_response(FieldReader& fields, ApiRequest::Response& response) {
  const json* value = fields.find("response");
  if (value == nullptr || !value->is_object())
    return fields.fail("response", "response must be an object.");
  FieldReader inner(*value);
  inner.text("echo", response.echo);
  inner.text("messages", response.messages);
  if (inner.failed()) return fields.fail("response", inner.error()->message);
  const Result<json> echo = parse_json_body(response.echo);
  if (!echo || !echo->is_object()) return fields.fail("response", "echo is no JSON object.");
  // A list alone is no body.
  if (!response.messages.empty() && !parse_json_body("{\"messages\":" + response.messages + "}"))
    fields.fail("response", "messages is no JSON.");
}

void write_pooled_form(JsonWriter& json, const ApiRequest::Pooled& pooled, Pooling pooling) {
  json.key("pooled").begin_object().member("embedding", pooled.embedding);
  json.member("base64", pooled.base64).member("normalize", pooled.normalize);
  json.member("all", pooling == Pooling::kAll).end_object();
}

void read_pooled_form(FieldReader& fields, ApiRequest::Pooled& pooled, Pooling& pooling) {
  const json* value = fields.find("pooled");
  if (value == nullptr || !value->is_object())
    return fields.fail("pooled", "pooled must be an object.");
  FieldReader inner(*value);
  bool all = false;
  inner.boolean("embedding", pooled.embedding);
  inner.boolean("base64", pooled.base64);
  inner.boolean("normalize", pooled.normalize);
  inner.boolean("all", all);
  pooling = all ? Pooling::kAll : Pooling::kLast;
  if (inner.failed()) fields.fail("pooled", inner.error()->message);
}

/// What is said once for all prompts, and of one of them.
void read_fields(FieldReader& fields, std::size_t max_model_len, ApiRequest& request,
                 GenerationRequest& prompt) {
  fields.text("model", request.model);
  fields.boolean("chat", request.chat);
  fields.boolean("include_usage", request.include_usage);
  fields.boolean("continuous_usage", request.continuous_usage);
  fields.boolean("echo", request.echo);
  fields.boolean("return_token_ids", request.return_token_ids);
  fields.boolean("tokens_as_ids", request.tokens_as_ids);
  std::optional<std::int64_t> n, logprobs, max_tokens, tokens, prompt_logprobs, shown, min_tokens;
  fields.integer("n", 1, static_cast<std::int64_t>(limits::kChoicesMax), n);
  fields.integer("logprobs", 0, static_cast<std::int64_t>(limits::kTopLogprobsMax), logprobs);
  fields.integer("max_tokens", 0, std::numeric_limits<std::uint32_t>::max(), max_tokens);
  fields.integer("tokens", 0, static_cast<std::int64_t>(limits::kHttpBodyBytesMax), tokens);
  if (n) prompt.n = static_cast<std::uint32_t>(*n);
  if (logprobs) request.logprobs = prompt.logprobs = static_cast<std::int32_t>(*logprobs);
  if (max_tokens) prompt.max_tokens = static_cast<std::uint32_t>(*max_tokens);
  fields.integer("prompt_logprobs", 0, static_cast<std::int64_t>(limits::kTopLogprobsMax),
                 prompt_logprobs);
  if (prompt_logprobs) request.prompt_logprobs = static_cast<std::int32_t>(*prompt_logprobs);
  fields.integer("shown", 1, prompt.n, shown);
  if (shown) request.shown = static_cast<std::uint32_t>(*shown);
  fields.integer("min_tokens", 1, std::numeric_limits<std::uint32_t>::max(), min_tokens);
  if (min_tokens) prompt.min_tokens = static_cast<std::uint32_t>(*min_tokens);
  fields.boolean("include_stop", prompt.include_stop_str_in_output);
  bool special_tokens = false, truncated = false;
  fields.boolean("special_tokens", special_tokens);
  prompt.skip_special_tokens = !special_tokens;
  fields.boolean("truncated", truncated);
  prompt.truncate_prompt_tokens = truncated ? -1 : 0;
  read_start(fields, request.start);
  fields.texts("stop", limits::kStopStringsMax, limits::kStopStringBytesMax, prompt.stop);
  if (tokens) {
    // More than fit: it was truncated.
    prompt.prompt =
        std::vector<TokenId>(std::min(static_cast<std::size_t>(*tokens), max_model_len));
  } else if (request.echo) {
    fields.text("text", prompt.prompt.emplace<std::string>());
  }
  bool no_reasoning = false;
  fields.boolean("no_reasoning", no_reasoning);
  request.include_reasoning = !no_reasoning;
  read_calls(fields, request.calls);
  if (fields.find("pooled") != nullptr)
    read_pooled_form(fields, request.pooled.emplace(), prompt.pooling);
  if (fields.find("response") != nullptr) read_response(fields, request.response.emplace());
  fields.boolean("message", request.message);
}

/// The request with the one prompt that this form is of.
Result<ApiRequest> read_form(const std::string& form, std::size_t max_model_len) {
  const Result<json> object = parse_json_body(form);
  if (!object) return corrupt("A request's form is no JSON object.");
  ApiRequest request;
  FieldReader fields(*object);
  read_fields(fields, max_model_len, request, request.prompts.emplace_back());
  if (fields.failed()) return corrupt("A request's form is wrong: " + fields.error()->message);
  return request;
}

}  // namespace

std::string write_form(const ApiRequest& request, std::size_t prompt) {
  const GenerationRequest& of = request.prompts[prompt];
  JsonWriter json;
  json.begin_object();
  const auto flag = [&json](std::string_view name, bool set) {
    if (set) json.member(name, true);
  };
  if (!request.model.empty()) json.member("model", request.model);
  flag("chat", request.chat);
  flag("include_usage", request.include_usage);
  flag("continuous_usage", request.continuous_usage);
  flag("echo", request.echo);
  flag("return_token_ids", request.return_token_ids);
  flag("tokens_as_ids", request.tokens_as_ids);
  json.member("n", of.n);
  if (request.logprobs >= 0) json.member("logprobs", request.logprobs);
  if (of.max_tokens) json.member("max_tokens", *of.max_tokens);
  flag("no_reasoning", !request.include_reasoning);
  if (request.prompt_logprobs >= 0) json.member("prompt_logprobs", request.prompt_logprobs);
  if (request.shown > 0) json.member("shown", request.shown);
  if (of.min_tokens > 0 && !of.stop.empty()) json.member("min_tokens", of.min_tokens);
  flag("include_stop", of.include_stop_str_in_output);
  flag("special_tokens", !of.skip_special_tokens);
  flag("truncated", request.echo && of.truncate_prompt_tokens != 0);
  write_start(json, request.start);
  if (request.calls.read) write_calls(json, request.calls);
  if (request.pooled) write_pooled_form(json, *request.pooled, of.pooling);
  if (request.response) write_response(json, *request.response);
  flag("message", request.message);
  if (!of.stop.empty()) {
    json.key("stop").begin_array();
    for (const std::string& stop : of.stop) json.value(stop);
    json.end_array();
  }
  if (request.echo) {
    // Of one that is truncated its tokens are echoed.
    const auto* text = std::get_if<std::string>(&of.prompt);
    if (text != nullptr && of.truncate_prompt_tokens == 0) json.member("text", *text);
    if (const auto* ids = std::get_if<std::vector<TokenId>>(&of.prompt))
      json.member("tokens", ids->size());
  }
  json.end_object();
  return std::move(json).text();
}

Result<ApiRequest> read_forms(const std::vector<std::shared_ptr<const RequestName>>& names,
                              std::size_t max_model_len) {
  const auto first =
      std::find_if(names.begin(), names.end(), [](const auto& name) { return name != nullptr; });
  if (first == names.end()) return corrupt("A request has no prompt.");
  Result<ApiRequest> request = read_form((*first)->form, max_model_len);
  if (!request) return request;
  if (names.size() * request->n() > limits::kHttpChoicesMax || (request->chat && names.size() > 1))
    return corrupt("A request's form is wrong: it has too many choices.");
  std::vector<GenerationRequest> prompts(names.size(), request->prompts.front());
  for (std::size_t i = 0; request->echo && i < names.size(); ++i) {
    prompts[i].prompt = std::string();
    if (!names[i]) continue;
    Result<ApiRequest> own = read_form(names[i]->form, max_model_len);
    if (!own) return own;
    prompts[i].prompt = std::move(own->prompts.front().prompt);
  }
  request->prompts = std::move(prompts);
  return request;
}

}  // namespace troupe
