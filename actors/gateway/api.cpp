#include "actors/gateway/api.h"

#include <array>
#include <chrono>
#include <optional>

#include "actors/gateway/console_page.h"
#include "actors/gateway/http_target.h"
#include "actors/gateway/json_writer.h"
#include "runtime/version.h"

namespace troupe {
namespace {

constexpr std::string_view kModelPrefix = "/v1/models/";

struct RouteEntry {
  std::string_view path;
  std::string_view method;
  Route route;
  bool open;  // Without a key: probes have none.
};

constexpr std::array kRoutes{
    RouteEntry{"/v1/completions", "POST", Route::kCompletions, false},
    RouteEntry{"/v1/chat/completions", "POST", Route::kChat, false},
    RouteEntry{"/tokenize", "POST", Route::kTokenize, false},
    RouteEntry{"/detokenize", "POST", Route::kDetokenize, false},
    RouteEntry{"/v1/models", "GET", Route::kModels, false},
    RouteEntry{"/health", "GET", Route::kHealth, true},
    RouteEntry{"/metrics", "GET", Route::kMetrics, false},
    RouteEntry{"/cluster/status", "GET", Route::kStatus, false},
    RouteEntry{"/version", "GET", Route::kVersion, false},
    RouteEntry{"/", "GET", Route::kConsole, true},  // It knows nothing; it asks for the key.
};

std::optional<RouteEntry> find_route(std::string_view path) {
  for (const RouteEntry& entry : kRoutes) {
    if (entry.path == path) return entry;
  }
  if (path.starts_with(kModelPrefix)) return RouteEntry{path, "GET", Route::kModel, false};
  return std::nullopt;
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
  if (error.status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

Api::Api(Doors doors, const ClusterView& cluster, const GatewayModel& model, const Metrics& metrics)
    : keys_(doors.api_keys),
      sites_(std::move(doors.sites)),
      metrics_without_key_(doors.metrics_without_key),
      cluster_(cluster),
      model_(model),
      metrics_(metrics),
      console_(console_page()),
      created_(unix_time_s()) {}

std::optional<ApiError> Api::admit(const HttpHead& head, Route& route) const {
  if (auto refusal = sites_.admit(head.host, head.origin)) return refusal;
  if (head.method == "OPTIONS" && !head.origin.empty() && !head.requested_method.empty()) {
    route = Route::kPreflight;
    return std::nullopt;
  }
  const std::optional<RouteEntry> entry = find_route(head.path);
  const bool open =
      entry && (entry->open || (entry->route == Route::kMetrics && metrics_without_key_));
  if (!open && !keys_.admit(head.authorization)) {
    return ApiError{.status = 401,
                    .message = "The API key is missing or wrong; send Authorization: Bearer KEY.",
                    .code = "invalid_api_key"};
  }
  if (!entry) {
    return ApiError{.status = 404,
                    .message = "There is nothing at '" + head.path.substr(0, 256) + "'.",
                    .code = "not_found"};
  }
  const bool fits =
      head.method == entry->method || (head.method == "HEAD" && entry->method == "GET");
  if (!fits) {
    return ApiError{
        .status = 405,
        .message = std::string(entry->path) + " takes " + std::string(entry->method) + " only.",
        .code = "method_not_allowed",
        .allow = std::string(entry->method)};
  }
  if (entry->method == "POST" && !is_json_type(head.content_type)) {
    return ApiError{.status = 415,
                    .message = "The body must be JSON: send Content-Type: application/json.",
                    .code = "unsupported_media_type"};
  }
  route = entry->route;
  return std::nullopt;
}

HttpFields Api::fields_for(const HttpHead& head) const {
  if (!sites_.lets_others_in()) return {};
  HttpFields fields{{"Vary", "Origin"}};
  if (head.origin.empty() || sites_.admit(head.host, head.origin)) return fields;
  fields.emplace_back("Access-Control-Allow-Origin", head.origin);
  fields.emplace_back("Access-Control-Expose-Headers", "Retry-After");
  return fields;
}

ModelFacts Api::facts() const {
  return {.served_model_name = model_.served_model_name(),
          .has_tokenizer = model_.has_tokenizer(),
          .reasoning = model_.reasoning({}).style != ReasoningStyle::kNone};
}

std::optional<ApiError> Api::parse(Route route, std::string_view body, ApiRequest& out) const {
  return route == Route::kChat ? parse_chat(body, facts(), out)
                               : parse_completion(body, facts(), out);
}

HttpReply Api::reply(Route route, const HttpHead& head, std::string_view body) const {
  switch (route) {
    case Route::kTokenize:
      return tokenize(body);
    case Route::kDetokenize:
      return detokenize(body);
    case Route::kModels:
    case Route::kModel:
      return models(head, route);
    case Route::kHealth:
      return health();
    case Route::kMetrics:
      return {.body = metrics_.text(), .content_type = "text/plain; version=0.0.4; charset=utf-8"};
    case Route::kStatus:
      return {.body = cluster_.status_json()};
    case Route::kConsole:
      return console_;
    case Route::kVersion: {
      JsonWriter json;
      json.begin_object().member("version", kVersion).end_object();
      return {.body = std::move(json).text()};
    }
    case Route::kPreflight:
      return preflight(head);
    case Route::kCompletions:
    case Route::kChat:
      break;
  }
  return error_reply({.message = "This path generates.", .type = "server_error"});
}

/// Its state and nothing else: anybody may ask.
HttpReply Api::health() const {
  if (cluster_.ready()) return {.body = "{\"status\":\"ok\"}"};
  return error_reply(to_api_error(unavailable("The cluster is " + cluster_.state() + ".")));
}

HttpReply Api::preflight(const HttpHead& head) const {
  HttpReply reply{.content_type = "text/plain"};
  reply.headers = {{"Access-Control-Allow-Methods", "GET, HEAD, POST"},
                   {"Access-Control-Max-Age", "600"}};
  if (!head.requested_headers.empty())
    reply.headers.emplace_back("Access-Control-Allow-Headers", head.requested_headers);
  return reply;
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
    const std::string_view name = std::string_view(head.path).substr(kModelPrefix.size());
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

HttpReply Api::tokenize(std::string_view body) const {
  TokenizeRequest request;
  if (const auto error = parse_tokenize(body, facts(), request)) return error_reply(*error);
  const Result<std::vector<TokenId>> ids =
      model_.encode(request.prompt, request.add_special_tokens);
  if (!ids) return error_reply(to_api_error(ids.error()));
  JsonWriter json;
  json.begin_object().key("tokens").begin_array();
  for (const TokenId id : *ids) json.value(id);
  json.end_array().member("count", ids->size());
  json.member("max_model_len", model_.max_model_len()).end_object();
  return {.body = std::move(json).text()};
}

HttpReply Api::detokenize(std::string_view body) const {
  DetokenizeRequest request;
  if (const auto error = parse_detokenize(body, facts(), request)) return error_reply(*error);
  const Result<std::string> text = model_.decode(request.tokens);
  if (!text) return error_reply(to_api_error(text.error()));
  JsonWriter json;
  json.begin_object().member("prompt", *text).end_object();
  return {.body = std::move(json).text()};
}

}  // namespace troupe
