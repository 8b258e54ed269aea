#include "actors/gateway/request_body.h"

#include <string>

namespace troupe {

std::optional<ApiError> check_model(FieldReader& fields, const ModelFacts& model) {
  std::string name(model.served_model_name);
  fields.text("model", name);
  if (fields.failed()) return fields.error();
  if (name == model.served_model_name) return std::nullopt;
  return ApiError{.status = 404,
                  .message = "The model '" + name.substr(0, 256) +
                             "' does not exist; this server has '" +
                             std::string(model.served_model_name) + "'.",
                  .param = "model",
                  .code = "model_not_found"};
}

}  // namespace troupe
