#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/frontend/named_requests.h"
#include "actors/gateway/api_error.h"
#include "actors/gateway/api_request.h"
#include "actors/gateway/gateway_model.h"

namespace troupe {

/// A request that was accepted before, by what is kept of it.
struct FoundRequest {
  std::string id;
  std::uint64_t owner = 0;
  std::string key = {};               ///< if not empty, it is looked for by that, and not by `id`
  ApiRequest request;                 ///< as read_forms() gives it
  std::vector<NamedRequest> prompts;  ///< by index, all
  std::int64_t created_unix_s = 0;

  std::size_t choices() const { return prompts.size() * request.n(); }
};

/// Fills in all but `owner` and `id` or `key`, which are given, or says why not: 404, 503, or 500
/// if what was kept is broken. Waits for the Router.
std::optional<ApiError> find_request(NamedRequests& requests, const GatewayModel& model,
                                     FoundRequest& out);

/// Also where it is somebody else's.
ApiError no_request_error(std::string_view id);

}  // namespace troupe
