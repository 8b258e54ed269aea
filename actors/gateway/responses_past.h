#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "actors/frontend/named_requests.h"
#include "actors/gateway/api_error.h"
#include "actors/gateway/gateway_model.h"
#include "runtime/clock.h"

namespace troupe {

/// What one request asks of earlier responses of its owner: what was asked is in their names
/// (request_form.h), what was answered is read from the Router. So they can be followed as long as
/// they are found, also after the head began again. The one that was read last is kept, since items
/// in a row are of one response; all waiting has one end. Errors: 400 where there is no such
/// response, or it was not stored, or has not ended well, with a reason that a sentence can go on
/// with.
class PastResponses {
 public:
  PastResponses(NamedRequests& requests, const GatewayModel& model, std::uint64_t owner)
      : requests_(requests), model_(model), owner_(owner) {}

  /// The conversation that ended with this response, as a chat's messages (a JSON list).
  std::optional<ApiError> conversation(const std::string& id, std::string& messages);
  /// An item of what a response answered, or was asked, by the item's own id.
  std::optional<ApiError> item(const std::string& id, nlohmann::json& item);

 private:
  struct Past {
    std::string id;
    std::string asked, answered;        // Messages of a chat, JSON lists.
    std::vector<nlohmann::json> items;  // Of both, with their ids.
  };
  std::optional<ApiError> read(const std::string& id);

  NamedRequests& requests_;
  const GatewayModel& model_;
  const std::uint64_t owner_;
  std::optional<TimePoint> until_;  // Once it has waited.
  std::optional<Past> last_;
};

}  // namespace troupe
