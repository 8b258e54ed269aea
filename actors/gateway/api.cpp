#include "actors/gateway/api.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <memory>
#include <optional>
#include <span>

#include "actors/gateway/console_page.h"
#include "actors/gateway/history_json.h"
#include "actors/gateway/http_target.h"
#include "actors/gateway/json_writer.h"
#include "actors/gateway/messages_request.h"
#include "actors/gateway/pooling_request.h"
#include "actors/gateway/responses_items.h"
#include "actors/gateway/responses_past.h"
#include "actors/gateway/responses_request.h"
#include "actors/gateway/thinking_fields.h"
#include "actors/gateway/tokenizer_answer.h"
#include "actors/gateway/tool_fields.h"
#include "runtime/limits.h"
#include "runtime/version.h"
#include "runtime/xxh3.h"

namespace troupe {
namespace {

/// A body that is compressed, say: 415.
constexpr std::string_view kEncodedBody = "unsupported_content_encoding";

/// One field of printable characters.
bool is_one_name(const std::vector<std::string>& fields, std::size_t bytes_max) {
  return fields.size() == 1 && !fields[0].empty() && fields[0].size() <= bytes_max &&
         std::ranges::all_of(fields[0], [](char c) { return c >= ' ' && c <= '~'; });
}

/// None, or one that can be kept and compared.
bool are_good_keys(const std::vector<std::string>& keys) {
  return keys.empty() || is_one_name(keys, limits::kHttpIdempotencyKeyBytesMax);
}

/// So that the same body at another endpoint is another question.
std::string_view endpoint_of(Route route) {
  switch (route) {
    case Route::kChat:
      return "chat\n";
    case Route::kResponses:
      return "responses\n";
    case Route::kMessages:
      return "messages\n";
    case Route::kEmbeddings:
      return "embeddings\n";
    case Route::kPooling:
      return "pooling\n";
    default:
      return "completions\n";
  }
}

std::int64_t unix_time_s() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(since).count();
}

}  // namespace

HttpReply error_reply(const ApiError& error) {
  HttpReply reply{.status = error.status, .body = render_error(error)};
  if (error.retry_after_s > 0) {
    reply.headers.emplace_back("Retry-After", std::to_string(error.retry_after_s));
  }
  if (!error.allow.empty()) reply.headers.emplace_back("Allow", error.allow);
  // RFC 9110, 15.5.16: what it may have been sent in.
  if (error.code == kEncodedBody) reply.headers.emplace_back("Accept-Encoding", "identity");
  if (error.status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

HttpReply error_reply(const ApiError& error, std::string_view path, std::string_view request_id) {
  HttpReply reply = error_reply(error);
  if (!speaks_messages(path)) return reply;
  reply.status = message_error_status(error.status);
  reply.body = render_message_error(error, request_id);
  return reply;
}

Api::Api(Doors doors, NamedRequests& requests, const ClusterView& cluster,
         const GatewayModel& model, const Metrics& metrics, AnswerRoom& room)
    : keys_(doors.api_keys),
      sites_(std::move(doors.sites)),
      metrics_without_key_(doors.metrics_without_key),
      requests_(requests),
      cluster_(cluster),
      model_(model),
      metrics_(metrics),
      room_(room),
      console_(console_page()),
      created_(unix_time_s()) {}

std::optional<ApiError> Api::admit(const HttpHead& head, Route& route) const {
  if (auto refusal = sites_.admit(head.host, head.origin)) return refusal;
  if (head.method == "OPTIONS" && !head.origin.empty() && !head.requested_method.empty()) {
    route = Route::kPreflight;
    return std::nullopt;
  }
  const std::optional<RouteEntry> entry = find_route(head.path, head.method, head.query);
  const bool open =
      entry && (entry->open || (entry->route == Route::kMetrics && metrics_without_key_));
  if (!open && !keys_.admit(head.authorization)) {
    return ApiError{.status = 401,
                    .message =
                        "The API key is missing or wrong; send Authorization: Bearer KEY, or "
                        "X-Api-Key: KEY.",
                    .code = "invalid_api_key"};
  }
  if (!entry) {
    return ApiError{.status = 404,
                    .message = "There is nothing at '" + head.path.substr(0, 256) + "'.",
                    .code = "not_found"};
  }
  // What is generated has no length that HEAD could tell.
  const bool fits = head.method == entry->method ||
                    (head.method == "HEAD" && entry->method == "GET" && !finds(entry->route));
  if (!fits) {
    std::string methods(entry->method);
    if (!entry->also_takes.empty()) methods += ", " + std::string(entry->also_takes);
    return ApiError{.status = 405,
                    .message = std::string(entry->path) + " takes " + methods + " only.",
                    .code = "method_not_allowed",
                    .allow = methods};
  }
  if (entry->method == "POST" && !is_json_type(head.content_type)) {
    return ApiError{.status = 415,
                    .message = "The body must be JSON: send Content-Type: application/json.",
                    .code = "unsupported_media_type"};
  }
  const auto& encodings = head.content_encodings;
  if (entry->method == "POST" && !std::all_of(encodings.begin(), encodings.end(), is_identity)) {
    return ApiError{.status = 415,
                    .message =
                        "The body must not be compressed: send it without "
                        "Content-Encoding (identity is all that is supported).",
                    .code = std::string(kEncodedBody)};
  }
  if (generates(entry->route) && !are_good_keys(head.idempotency_keys))
    return bad_field("Idempotency-Key", "Idempotency-Key must be one field of 1 to " +
                                            std::to_string(limits::kHttpIdempotencyKeyBytesMax) +
                                            " printable ASCII characters.");
  route = entry->route;
  return std::nullopt;
}

bool Api::names_itself(const HttpHead& head) {
  return is_one_name(head.request_ids, limits::kHttpOwnRequestIdBytesMax);
}

void Api::add_request_id(const HttpHead& head, const std::string& id, HttpFields& fields) {
  fields.emplace_back("X-Request-Id", id);
  if (speaks_messages(head.path)) fields.emplace_back("request-id", id);
}

HttpFields Api::fields_for(const HttpHead& head) const {
  HttpFields fields;
  if (names_itself(head)) add_request_id(head, head.request_ids.front(), fields);
  if (!sites_.lets_others_in()) return fields;
  fields.emplace_back("Vary", "Origin");
  if (head.origin.empty() || sites_.admit(head.host, head.origin)) return fields;
  fields.emplace_back("Access-Control-Allow-Origin", head.origin);
  fields.emplace_back("Access-Control-Expose-Headers", "Retry-After, X-Request-Id, request-id");
  return fields;
}

Asker Api::asker(Route route, const HttpHead& head, std::string_view body) const {
  Asker asker{.owner = keys_.owner(head.authorization), .key = {}, .body = {}};
  if (!head.idempotency_keys.empty()) asker.key = head.idempotency_keys.front();
  Xxh3 hash;
  for (const std::string_view part : {endpoint_of(route), body})
    hash.add(std::as_bytes(std::span(part.data(), part.size())));
  asker.body = hash.digest();
  return asker;
}

std::optional<ApiError> Api::find(const HttpHead& head, FoundRequest& out) const {
  const auto id = request_id_in(head.path);
  if (!id) return no_request_error("");
  out.id = *id;
  out.owner = keys_.owner(head.authorization);
  if (auto error = find_request(requests_, model_, out)) return error;
  // OpenAI's API finds none of those.
  const bool stored = !out.request.response || !out.request.response->messages.empty();
  if (stored || !asks_for_response(head.path)) return std::nullopt;
  ApiError error = no_request_error(out.id);
  error.message = "The response '" + out.id +
                  "' was not stored (store was false). What there is of it yet is at "
                  "/v1/requests/" +
                  out.id + ".";
  return error;
}

ModelFacts Api::facts() const {
  return {.served_model_name = model_.served_model_name(),
          .has_tokenizer = model_.has_tokenizer(),
          .reasoning = model_.reasoning_style() != ReasoningStyle::kNone,
          .tools = model_.tool_style()};
}

std::optional<ApiError> Api::parse(Route route, const Asker& asker, std::string_view body,
                                   ApiRequest& out, bool writes_grammars) const {
  ModelFacts model = facts();
  model.writes_grammars = writes_grammars;
  if (route == Route::kEmbeddings) return parse_embeddings(body, model, out);
  if (route == Route::kPooling) return parse_pooling(body, model, out);
  if (route == Route::kCompletions) return parse_completion(body, model, out);
  PastResponses past(requests_, model_, asker.owner);
  const Recall recall{
      .response = [&](const std::string& id,
                      std::string& messages) { return past.conversation(id, messages); },
      .item = [&](const std::string& id, nlohmann::json& item) { return past.item(id, item); }};
  if (auto error = route == Route::kResponses  ? parse_response(body, model, recall, out)
                   : route == Route::kMessages ? parse_message(body, model, out)
                                               : parse_chat(body, model, out))
    return error;
  out.wants_grammar |= !out.forced.empty();
  if (out.wants_grammar && !writes_grammars) return std::nullopt;
  out.start = model_.reasoning(out.prompts.front());
  auto error = check_thinking(model_, out);
  if (!error) error = force_calls(model_, out);
  return error ? std::optional(in_words_of(route, std::move(*error))) : std::nullopt;
}

ApiError Api::in_words_of(Route route, ApiError error) {
  if (route == Route::kResponses) return as_response_error(std::move(error));
  if (route == Route::kMessages) return as_message_error(std::move(error));
  return error;
}

HttpReply Api::reply(Route route, const HttpHead& head, std::string_view body) const {
  switch (route) {
    case Route::kTokenize:
      return tokenize(body);
    case Route::kDetokenize:
      return detokenize(body);
    case Route::kCountTokens:
      return count_tokens(head, body);
    case Route::kModels:
    case Route::kModel:
      return models(head, route);
    case Route::kHealth:
      return health();
    case Route::kMetrics:
      return {.body = metrics_.text(), .content_type = "text/plain; version=0.0.4; charset=utf-8"};
    case Route::kStatus:
      return {.body = cluster_.status_json()};
    case Route::kHistory:
      return {.body = history_json(metrics_.history())};
    case Route::kConsole:
      return console_;
    case Route::kVersion: {
      JsonWriter json;
      json.begin_object().member("version", kVersion).end_object();
      return {.body = std::move(json).text()};
    }
    case Route::kPreflight:
      return preflight(head);
    case Route::kRequestForget:
      return forget(head);
    case Route::kInputItems:
      return input_items(head);
    case Route::kResponseCancel:
      return cancel(head);
    case Route::kCompletions:
    case Route::kChat:
    case Route::kResponses:
    case Route::kMessages:
    case Route::kEmbeddings:
    case Route::kPooling:
    case Route::kRequestAnswer:
    case Route::kRequestEvents:
      break;
  }
  return error_reply({.message = "This path generates.", .type = "server_error"});
}

/// Whether requests are taken, and nothing else: anybody may ask.
HttpReply Api::health() const {
  const std::string why_not = cluster_.refuses();
  if (why_not.empty()) return {.body = "{\"status\":\"ok\"}"};
  return error_reply(to_api_error(unavailable(why_not)));
}

HttpReply Api::preflight(const HttpHead& head) const {
  HttpReply reply{.content_type = "text/plain"};
  reply.headers = {{"Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE"},
                   {"Access-Control-Max-Age", "600"}};
  if (!head.requested_headers.empty())
    reply.headers.emplace_back("Access-Control-Allow-Headers", head.requested_headers);
  return reply;
}

HttpReply Api::forget(const HttpHead& head) const {
  const std::string id(request_id_in(head.path).value_or(""));
  FoundRequest found;
  if (asks_for_response(head.path))
    if (const auto error = find(head, found)) return error_reply(*error);
  const Status forgotten = requests_.forget(id, keys_.owner(head.authorization));
  if (!forgotten && forgotten.error().code == ErrorCode::kNotFound)
    return error_reply(no_request_error(id));
  if (!forgotten) return error_reply(to_api_error(forgotten.error()));
  JsonWriter json;
  json.begin_object().member("id", id);
  json.member("object", asks_for_response(head.path) ? "response" : "request.deleted");
  json.member("deleted", true).end_object();
  return {.body = std::move(json).text()};
}

HttpReply Api::input_items(const HttpHead& head) const {
  FoundRequest found;
  if (const auto error = find(head, found)) return error_reply(*error);
  if (!found.request.response) return error_reply(no_request_error(found.id));
  auto items = write_input_items(found.id, found.request.response->messages, head.query);
  return items ? HttpReply{.body = std::move(*items)} : error_reply(to_api_error(items.error()));
}

/// Who waits for an answer ends it by leaving.
HttpReply Api::cancel(const HttpHead& head) const {
  FoundRequest found;
  if (const auto error = find(head, found)) return error_reply(*error);
  return error_reply(bad_field("",
                               "Only a response that was asked for with background can be "
                               "cancelled, and this server has none; DELETE ends this one."));
}

HttpReply Api::models(const HttpHead& head, Route route) const {
  JsonWriter json;
  const auto model = [&] {
    json.begin_object().member("id", model_.served_model_name()).member("object", "model");
    json.member("created", created_).member("owned_by", "troupe");
    json.member("root", model_.served_model_name());
    json.member("max_model_len", model_.max_model_len()).end_object();
  };
  if (route == Route::kModel) {
    const std::string_view name = model_name_in(head.path);
    if (name != model_.served_model_name()) {
      return error_reply(
          {.status = 404,
           .message = "The model '" + std::string(name.substr(0, 256)) + "' does not exist.",
           .param = "model",
           .code = "model_not_found"});
    }
    model();
  } else {
    json.begin_object().member("object", "list").key("data").begin_array();
    model();
    json.end_array().end_object();
  }
  return {.body = std::move(json).text()};
}

/// Of what POST /v1/messages would ask the model.
HttpReply Api::count_tokens(const HttpHead& head, std::string_view body) const {
  ModelFacts model = facts();
  model.writes_grammars = false;
  ApiRequest request;
  const auto refuse = [&head](const ApiError& error) {
    return error_reply(error, head.path, names_itself(head) ? head.request_ids.front() : "");
  };
  if (const auto error = parse_count_tokens(body, model, request)) return refuse(*error);
  request.prompts.front().truncate_prompt_tokens = -1;  // It may be longer than the context.
  const auto tokens = model_.prompt_tokens(request.prompts.front());
  if (!tokens) return refuse(as_message_error(to_api_error(tokens.error())));
  JsonWriter json;
  json.begin_object().member("input_tokens", tokens->size()).end_object();
  return {.body = std::move(json).text()};
}

HttpReply Api::tokenize(std::string_view body) const {
  TokenizeRequest request;
  if (const auto error = parse_tokenize(body, facts(), request)) return error_reply(*error);
  const auto answer = std::make_shared<TokenizerAnswer>(room_, model_);
  if (const auto error = answer->encode(request)) return error_reply(*error);
  return {.write_piece = [answer](std::string& out) { return answer->write_piece(out); }};
}

HttpReply Api::detokenize(std::string_view body) const {
  DetokenizeRequest request;
  if (const auto error = parse_detokenize(body, facts(), request)) return error_reply(*error);
  const auto answer = std::make_shared<TokenizerAnswer>(room_, model_);
  if (const auto error = answer->decode(request)) return error_reply(*error);
  return {.write_piece = [answer](std::string& out) { return answer->write_piece(out); }};
}

}  // namespace troupe
