#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "actors/gateway/api_error.h"
#include "actors/gateway/api_request.h"
#include "actors/gateway/field_reader.h"
#include "actors/gateway/json_body.h"

namespace troupe {

/// 404 where the body asks for another model.
std::optional<ApiError> check_model(FieldReader& fields, const ModelFacts& model);

/// Reads the body and the model's name, then lets `read` do the rest.
template <class Read>
std::optional<ApiError> parse_request(std::string_view body, const ModelFacts& model, Read read) {
  const Result<nlohmann::json> object = parse_json_body(body);
  if (!object) return bad_field("", object.error().message);
  FieldReader fields(*object, body);
  if (auto error = check_model(fields, model)) return error;
  read(fields);
  fields.refuse_misspelt();
  return fields.error();
}

}  // namespace troupe
