#pragma once

#include <string_view>

#include "model/jinja/value.h"

namespace troupe::jinja {

/// range, dict, namespace, raise_exception, strftime_now. Undefined if there is none of this name.
Value global_function(std::string_view name);

}  // namespace troupe::jinja
