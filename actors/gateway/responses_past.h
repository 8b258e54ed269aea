#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "actors/frontend/named_requests.h"
#include "actors/gateway/api_error.h"
#include "actors/gateway/gateway_model.h"

namespace troupe {

/// The conversation that ended with the response `id`, as a chat's messages (a JSON list): what was
/// asked is in its name (request_form.h), what was answered is read from the Router. So it can be
/// followed as long as it is found, also after the head began again. Errors: 400 where `owner` has
/// no such response, or it was not stored, or has not ended well. Waits for the Router.
std::optional<ApiError> recall_response(NamedRequests& requests, const GatewayModel& model,
                                        const std::string& id, std::uint64_t owner,
                                        std::string& messages);

}  // namespace troupe
