#pragma once

#include <memory>

#include "actors/frontend/model_frontend.h"
#include "actors/gateway/gateway_model.h"

namespace troupe {

/// The gateway's view of the model frontend.
std::unique_ptr<GatewayModel> make_gateway_model(std::shared_ptr<const ModelFrontend> frontend);

}  // namespace troupe
