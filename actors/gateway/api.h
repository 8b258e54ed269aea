#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "actors/frontend/generation_service.h"
#include "actors/frontend/named_requests.h"
#include "actors/gateway/answer_room.h"
#include "actors/gateway/api_error.h"
#include "actors/gateway/api_keys.h"
#include "actors/gateway/api_request.h"
#include "actors/gateway/api_routes.h"
#include "actors/gateway/asker.h"
#include "actors/gateway/found_request.h"
#include "actors/gateway/gateway_model.h"
#include "actors/gateway/site_rules.h"
#include "actors/metrics/metrics.h"

namespace troupe {

/// Header fields, by name.
using HttpFields = std::vector<std::pair<std::string, std::string>>;

/// An answer.
struct HttpReply {
  int status = 200;
  std::string body = {};
  std::string content_type = "application/json";
  HttpFields headers = {};  ///< beyond type and length
  /// If set, what writes the body instead: appends the next piece, true with the last.
  std::function<bool(std::string&)> write_piece = {};
};

HttpReply error_reply(const ApiError& error);
/// The same as who asks at this path reads it (speaks_messages). `request_id` may be empty.
HttpReply error_reply(const ApiError& error, std::string_view path, std::string_view request_id);

/// What is known of an HTTP request once its header is read.
struct HttpHead {
  std::string method;
  std::string path;                 ///< percent-decoded, without the query
  std::string query;                ///< as it was sent
  std::optional<std::string> host;  ///< none only with HTTP/1.0
  // The values of header fields; empty: not there. Anthropic's X-Api-Key is Authorization, too.
  std::string authorization, content_type, origin;
  std::string requested_method, requested_headers;  ///< Access-Control-Request-...
  std::string last_event_id;
  std::vector<std::string> idempotency_keys, request_ids, content_encodings;  ///< of all of them
};

/// Where requests go, and the answers that need no generation. Thread-safe.
class Api {
 public:
  /// Who may ask.
  struct Doors {
    std::vector<std::string> api_keys;  ///< as ApiKeys takes them; empty: everybody
    SiteRules::Options sites;
    bool metrics_without_key = false;
  };
  /// `room` is for the answers of the tokenizer.
  Api(Doors doors, NamedRequests& requests, const ClusterView& cluster, const GatewayModel& model,
      const Metrics& metrics, AnswerRoom& room);

  /// Decides by the header alone, so that a stranger's body is never read: 400 (Idempotency-Key),
  /// 401, 403, 404, 405, 415.
  std::optional<ApiError> admit(const HttpHead& head, Route& route) const;
  /// What the answer to it says, whatever else it says: to a browser, and the client's own
  /// X-Request-Id.
  HttpFields fields_for(const HttpHead& head) const;
  /// Adds an answer's id, under the names by which who asked looks for it.
  static void add_request_id(const HttpHead& head, const std::string& id, HttpFields& fields);
  /// Whether it has one that can be echoed. Another is ignored: it may be a proxy's.
  static bool names_itself(const HttpHead& head);

  static bool generates(Route route) {
    return route == Route::kCompletions || route == Route::kChat || route == Route::kResponses ||
           route == Route::kMessages || route == Route::kEmbeddings || route == Route::kPooling;
  }
  /// Whether the answer is what was generated for an earlier request.
  static bool finds(Route route) {
    return route == Route::kRequestAnswer || route == Route::kRequestEvents;
  }
  /// Who asks, of a request that generates.
  Asker asker(Route route, const HttpHead& head, std::string_view body) const;
  /// The earlier request that is asked for, for its owner: 404 if there is none, or if it is asked
  /// for as a Response and was not to be stored.
  std::optional<ApiError> find(const HttpHead& head, FoundRequest& out) const;

  /// Reads the body of a request that generates. A Response may follow another one of its asker's:
  /// then it waits for the Router. Without `writes_grammars` a request that wants one only says so.
  std::optional<ApiError> parse(Route route, const Asker& asker, std::string_view body,
                                ApiRequest& out, bool writes_grammars) const;
  /// An error of submitting what parse() has read, with the names that its client gave the fields.
  static ApiError in_words_of(Route route, ApiError error);
  /// Answers the others.
  HttpReply reply(Route route, const HttpHead& head, std::string_view body) const;

 private:
  ModelFacts facts() const;
  HttpReply health() const;
  HttpReply preflight(const HttpHead& head) const;
  HttpReply forget(const HttpHead& head) const;
  HttpReply input_items(const HttpHead& head) const;
  HttpReply cancel(const HttpHead& head) const;
  HttpReply models(const HttpHead& head, Route route) const;
  HttpReply count_tokens(const HttpHead& head, std::string_view body) const;
  HttpReply tokenize(std::string_view body) const;
  HttpReply detokenize(std::string_view body) const;

  const ApiKeys keys_;
  const SiteRules sites_;
  const bool metrics_without_key_;
  NamedRequests& requests_;
  const ClusterView& cluster_;
  const GatewayModel& model_;
  const Metrics& metrics_;
  AnswerRoom& room_;
  const HttpReply console_;
  const std::int64_t created_;
};

}  // namespace troupe
