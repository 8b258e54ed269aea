#pragma once

#include <optional>
#include <string_view>

namespace troupe {

/// The things that can be asked for.
enum class Route : unsigned char {
  kCompletions,
  kChat,
  kResponses,
  kMessages,
  kEmbeddings,
  kPooling,
  kTokenize,
  kDetokenize,
  kCountTokens,  // POST
  kModels,
  kModel,
  kHealth,
  kMetrics,
  kStatus,
  kHistory,
  kVersion,
  kConsole,
  kRequestAnswer,
  kRequestEvents,
  kInputItems,      // GET
  kRequestForget,   // DELETE
  kResponseCancel,  // POST
  kPreflight,       // OPTIONS: a browser asks whether a page of another site may ask.
};

struct RouteEntry {
  std::string_view path;
  std::string_view method;
  Route route;
  bool open = false;                 ///< without a key: probes have none
  std::string_view also_takes = "";  ///< another method, which leads elsewhere
};

/// What is at this path; none: nothing. `method` and `query` tell apart what shares one.
std::optional<RouteEntry> find_route(std::string_view path, std::string_view method,
                                     std::string_view query);

/// Whether a path is below those of Responses that were accepted before.
bool asks_for_response(std::string_view path);
/// The id of the request that was accepted before, of a path that is about one; none: it is not.
std::optional<std::string_view> request_id_in(std::string_view path);
/// The name of a model, of a path that is about one.
std::string_view model_name_in(std::string_view path);

/// Whether who asks there speaks Anthropic's Messages API, errors included.
bool speaks_messages(std::string_view path);

}  // namespace troupe
