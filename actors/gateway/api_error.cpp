#include "actors/gateway/api_error.h"

#include <array>
#include <string_view>
#include <utility>

namespace troupe {
namespace {

/// The fields that the parts behind the gateway check, since only they know the model, and those of
/// a list's place.
constexpr auto kFields = std::to_array<std::string_view>({"prompt",
                                                          "input",
                                                          "messages",
                                                          "chat_template_kwargs",
                                                          "max_tokens",
                                                          "temperature",
                                                          "top_p",
                                                          "top_k",
                                                          "min_p",
                                                          "repetition_penalty",
                                                          "presence_penalty",
                                                          "frequency_penalty",
                                                          "seed",
                                                          "n",
                                                          "stop",
                                                          "ignore_eos",
                                                          "logprobs",
                                                          "timeout",
                                                          "tokens",
                                                          "prompt_logprobs",
                                                          "grammar",
                                                          "ebnf",
                                                          "regex",
                                                          "json_schema",
                                                          "guided_json",
                                                          "guided_regex",
                                                          "guided_choice",
                                                          "guided_grammar",
                                                          "structured_outputs",
                                                          "response_format",
                                                          "tools",
                                                          "functions",
                                                          "min_tokens",
                                                          "stop_token_ids",
                                                          "allowed_token_ids",
                                                          "bad_words",
                                                          "logit_bias",
                                                          "from",
                                                          "limit",
                                                          "order",
                                                          "after",
                                                          "before"});

std::string field_named_by(std::string_view message) {
  const auto word_end = message.find_first_not_of("abcdefghijklmnopqrstuvwxyz_`");
  std::string word(message.substr(0, word_end));
  std::erase(word, '`');
  for (const std::string_view field : kFields) {
    if (field == word) return word;
  }
  return "";
}

/// How the message begins where a key was used for another question before.
constexpr std::string_view kKeyReused = "Idempotency-Key: ";

/// What Anthropic's API calls an error with this status.
std::string_view message_error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 408:
      return "timeout_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

ApiError key_reused(std::string message) {
  return {.status = 422,
          .message = std::move(message),
          .param = "Idempotency-Key",
          .code = "idempotency_key_reused"};
}

}  // namespace

ApiError bad_field(std::string field, std::string message) {
  return {.status = 400,
          .message = std::move(message),
          .param = std::move(field),
          .code = "invalid_value"};
}

ApiError to_api_error(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
      if (error.message.starts_with(kKeyReused)) return key_reused(error.message);
      return bad_field(field_named_by(error.message), error.message);
    case ErrorCode::kNotFound:
      return {.status = 404, .message = error.message, .code = "not_found"};
    case ErrorCode::kResourceExhausted:
      return {.status = 429,
              .message = error.message,
              .type = "rate_limit_error",
              .code = "queue_full",
              .retry_after_s = 1};
    case ErrorCode::kUnavailable:
      return {.status = 503,
              .message = error.message,
              .type = "service_unavailable_error",
              .code = "not_ready",
              .retry_after_s = 1};
    case ErrorCode::kDeadlineExceeded:
      return {.status = 408, .message = error.message, .type = "timeout_error", .code = "timeout"};
    case ErrorCode::kCancelled:
      return {.status = 503,
              .message = error.message,
              .type = "service_unavailable_error",
              .code = "cancelled",
              .retry_after_s = 1};
    case ErrorCode::kCorrupt:
    case ErrorCode::kRefused:
    case ErrorCode::kInternal:
      break;
  }
  return {.status = 500, .message = error.message, .type = "server_error", .code = "internal"};
}

void write_error(JsonWriter& json, const ApiError& error) {
  json.key("error").begin_object();
  json.member("message", error.message).member("type", error.type);
  json.member_or_null("param", error.param);
  json.member_or_null("code", error.code);
  json.end_object();
}

std::string render_error(const ApiError& error) {
  JsonWriter json;
  json.begin_object();
  write_error(json, error);
  json.end_object();
  return std::move(json).text();
}

int message_error_status(int status) { return status == 503 ? 529 : status; }

void write_message_error(JsonWriter& json, const ApiError& error) {
  json.key("error").begin_object().member("type", message_error_type(error.status));
  json.member("message", error.message).end_object();
}

std::string render_message_error(const ApiError& error, std::string_view request_id) {
  JsonWriter json;
  json.begin_object().member("type", "error");
  write_message_error(json, error);
  json.member_or_null("request_id", request_id).end_object();
  return std::move(json).text();
}

}  // namespace troupe
