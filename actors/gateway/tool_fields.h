#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "actors/gateway/api_request.h"
#include "actors/gateway/field_reader.h"
#include "actors/gateway/gateway_model.h"

namespace troupe {

/// Reads `tools`, `tool_choice` and `parallel_tool_calls` of a chat, or an older client's
/// `functions` and `function_call`. Templates show tools to the model as the client wrote them, in
/// its order.
void read_tools(FieldReader& fields, const ModelFacts& model, ApiRequest& out);

/// Reads what an assistant has called. `where` names the message.
void read_message_calls(FieldReader& fields, const std::string& where,
                        const nlohmann::json& message, ChatMessage& out);

/// Makes the request's answer call what it has to. Once it is read.
std::optional<ApiError> force_calls(const GatewayModel& model, ApiRequest& request);

}  // namespace troupe
