#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "actors/frontend/generation_service.h"
#include "actors/gateway/api_error.h"
#include "actors/gateway/api_keys.h"
#include "actors/gateway/api_request.h"
#include "actors/gateway/gateway_model.h"
#include "actors/gateway/site_rules.h"
#include "actors/metrics/metrics.h"

namespace troupe {

/// Header fields, by name.
using HttpFields = std::vector<std::pair<std::string, std::string>>;

/// An answer in one piece.
struct HttpReply {
  int status = 200;
  std::string body = {};
  std::string content_type = "application/json";
  HttpFields headers = {};  ///< beyond type and length
};

HttpReply error_reply(const ApiError& error);

/// The things that can be asked for.
enum class Route : unsigned char {
  kCompletions,
  kChat,
  kTokenize,
  kDetokenize,  // POST
  kModels,
  kModel,
  kHealth,
  kMetrics,
  kStatus,
  kVersion,
  kConsole,    // GET
  kPreflight,  // OPTIONS: a browser asks whether a page of another site may ask.
};

/// What is known of an HTTP request once its header is read.
struct HttpHead {
  std::string method;
  std::string path;                 ///< percent-decoded, without the query
  std::optional<std::string> host;  ///< none only with HTTP/1.0
  // The values of header fields; empty: not there.
  std::string authorization, content_type, origin;
  std::string requested_method, requested_headers;  ///< Access-Control-Request-...
};

/// Where requests go, and the answers that need no generation. Thread-safe.
class Api {
 public:
  /// Who may ask.
  struct Doors {
    std::vector<std::string> api_keys;  ///< empty: everybody
    SiteRules::Options sites;
    bool metrics_without_key = false;
  };
  Api(Doors doors, const ClusterView& cluster, const GatewayModel& model, const Metrics& metrics);

  /// Decides by the header alone, so that a stranger's body is never read: 401, 403, 404, 405, 415.
  std::optional<ApiError> admit(const HttpHead& head, Route& route) const;
  /// What the answer to it says to a browser, whatever else it says.
  HttpFields fields_for(const HttpHead& head) const;

  static bool generates(Route route) {
    return route == Route::kCompletions || route == Route::kChat;
  }
  /// Reads the body of a request that generates.
  std::optional<ApiError> parse(Route route, std::string_view body, ApiRequest& out) const;
  /// Answers the others.
  HttpReply reply(Route route, const HttpHead& head, std::string_view body) const;

 private:
  ModelFacts facts() const;
  HttpReply health() const;
  HttpReply preflight(const HttpHead& head) const;
  HttpReply models(const HttpHead& head, Route route) const;
  HttpReply tokenize(std::string_view body) const;
  HttpReply detokenize(std::string_view body) const;

  const ApiKeys keys_;
  const SiteRules sites_;
  const bool metrics_without_key_;
  const ClusterView& cluster_;
  const GatewayModel& model_;
  const Metrics& metrics_;
  const HttpReply console_;
  const std::int64_t created_;
};

}  // namespace troupe
