#pragma once

#include <optional>

#include "actors/gateway/api_request.h"
#include "actors/gateway/field_reader.h"
#include "actors/gateway/gateway_model.h"

namespace troupe {

/// Reads what a chat asks of the model's thoughts: `chat_template_kwargs`, and the fields that are
/// written into them, where they do not say otherwise: `reasoning_effort`, `enable_thinking`,
/// `thinking` and `verbosity`. And `include_reasoning`.
void read_thinking(FieldReader& fields, const ModelFacts& model, ApiRequest& out);

/// Refuses a switch that this model's template does not have. Once the request is read, and where
/// its answer begins is known.
std::optional<ApiError> check_thinking(const GatewayModel& model, const ApiRequest& request);

}  // namespace troupe
