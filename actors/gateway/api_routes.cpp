#include "actors/gateway/api_routes.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "actors/gateway/http_target.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

constexpr std::string_view kModelPrefix = "/v1/models/";
constexpr std::string_view kRequestPrefix = "/v1/requests/";
/// The same, of those that are Responses.
constexpr std::string_view kResponsePrefix = "/v1/responses/";

constexpr std::array kRoutes{
    RouteEntry{"/v1/completions", "POST", Route::kCompletions},
    RouteEntry{"/v1/chat/completions", "POST", Route::kChat},
    RouteEntry{"/v1/responses", "POST", Route::kResponses},
    RouteEntry{"/v1/messages", "POST", Route::kMessages},
    RouteEntry{"/v1/messages/count_tokens", "POST", Route::kCountTokens},
    RouteEntry{"/v1/embeddings", "POST", Route::kEmbeddings},
    RouteEntry{"/pooling", "POST", Route::kPooling},
    RouteEntry{"/tokenize", "POST", Route::kTokenize},
    RouteEntry{"/detokenize", "POST", Route::kDetokenize},
    RouteEntry{"/v1/models", "GET", Route::kModels},
    RouteEntry{"/v1/models/", "GET", Route::kModels},
    RouteEntry{"/health", "GET", Route::kHealth, true},
    RouteEntry{"/metrics", "GET", Route::kMetrics},
    RouteEntry{"/cluster/status", "GET", Route::kStatus},
    RouteEntry{"/cluster/history", "GET", Route::kHistory},
    RouteEntry{"/version", "GET", Route::kVersion},
    RouteEntry{"/", "GET", Route::kConsole, true},  // It knows nothing; it asks for the key.
};

/// What can be asked of a request that was accepted, behind its id.
struct Suffix {
  std::string_view text, method;
  Route route;
  bool of_responses;  // Alone.
};
constexpr std::array kSuffixes{
    Suffix{"/events", "GET", Route::kRequestEvents, false},
    Suffix{"/input_items", "GET", Route::kInputItems, true},
    Suffix{"/cancel", "POST", Route::kResponseCancel, true},
};

struct RequestPath {
  std::string_view id;
  bool response;
  const Suffix* suffix;  // Null: none.
};

std::optional<RequestPath> request_path(std::string_view path) {
  RequestPath found{.id = {}, .response = path.starts_with(kResponsePrefix), .suffix = nullptr};
  if (!found.response && !path.starts_with(kRequestPrefix)) return std::nullopt;
  path.remove_prefix(found.response ? kResponsePrefix.size() : kRequestPrefix.size());
  if (found.response && !path.starts_with("resp_")) return std::nullopt;
  for (const Suffix& suffix : kSuffixes) {
    if (!path.ends_with(suffix.text) || (suffix.of_responses && !found.response)) continue;
    found.suffix = &suffix;
    path.remove_suffix(suffix.text.size());
    break;
  }
  const auto in_an_id = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_';
  };
  const bool id = !path.empty() && path.size() <= limits::kHttpRequestIdBytesMax &&
                  std::all_of(path.begin(), path.end(), in_an_id);
  if (!id) return std::nullopt;
  found.id = path;
  return found;
}

}  // namespace

std::optional<RouteEntry> find_route(std::string_view path, std::string_view method,
                                     std::string_view query) {
  for (const RouteEntry& entry : kRoutes) {
    if (entry.path == path) return entry;
  }
  if (const auto request = request_path(path)) {
    if (request->suffix != nullptr)
      return RouteEntry{path, request->suffix->method, request->suffix->route};
    if (method == "DELETE") return RouteEntry{path, "DELETE", Route::kRequestForget};
    const bool stream = request->response &&
                        parse_switch(query_value(query, "stream").value_or("")).value_or(false);
    return RouteEntry{path, "GET", stream ? Route::kRequestEvents : Route::kRequestAnswer, false,
                      "DELETE"};
  }
  if (path.starts_with(kModelPrefix)) return RouteEntry{path, "GET", Route::kModel};
  return std::nullopt;
}

bool asks_for_response(std::string_view path) { return path.starts_with(kResponsePrefix); }

std::optional<std::string_view> request_id_in(std::string_view path) {
  const auto request = request_path(path);
  return request ? std::optional(request->id) : std::nullopt;
}

std::string_view model_name_in(std::string_view path) { return path.substr(kModelPrefix.size()); }

bool speaks_messages(std::string_view path) {
  constexpr std::string_view kPath = "/v1/messages";
  return path.starts_with(kPath) && (path.size() == kPath.size() || path[kPath.size()] == '/');
}

}  // namespace troupe
