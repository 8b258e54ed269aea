#pragma once

#include <string>
#include <string_view>

#include "runtime/result.h"

namespace troupe {

/// kInvalidArgument that begins with the field's name.
inline Error wrong_field(std::string_view field, std::string_view problem) {
  return invalid_argument(std::string(field) + ": " + std::string(problem));
}

}  // namespace troupe
