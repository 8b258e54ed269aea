#pragma once

#include <string>
#include <string_view>

#include "actors/gateway/json_writer.h"
#include "runtime/result.h"

namespace troupe {

/// What an HTTP client is told when something fails: OpenAI's error object and a status code.
struct ApiError {
  int status = 500;
  std::string message = {};
  std::string type = "invalid_request_error";
  std::string param = {};  ///< the field at fault; empty: null
  std::string code = {};   ///< for programs; empty: null
  int retry_after_s = 0;   ///< > 0: sent as Retry-After
  std::string allow = {};  ///< of a 405: the methods that are taken
};

/// A field of the request that makes no sense: 400.
ApiError bad_field(std::string field, std::string message);

/// An error of the inner parts as a client sees it. Messages of kInvalidArgument that begin with
/// the name of a field name it as `param`.
ApiError to_api_error(const Error& error);

/// Adds the member "error" to an object.
void write_error(JsonWriter& json, const ApiError& error);

/// {"error": {"message", "type", "param", "code"}}
std::string render_error(const ApiError& error);

// The same as Anthropic's API has it, which tells errors by their types:
/// Its status code: 529 where a server cannot take more.
int message_error_status(int status);
/// Adds the member "error": {"type", "message"}.
void write_message_error(JsonWriter& json, const ApiError& error);
/// {"type": "error", "error", "request_id"}; without an id that is null.
std::string render_message_error(const ApiError& error, std::string_view request_id);

}  // namespace troupe
