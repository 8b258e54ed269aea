#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace troupe {

/// What a request line asks for.
struct HttpTarget {
  std::string path;       ///< percent-decoded, without the query; begins with '/'
  std::string authority;  ///< of "http://host:port/path", which counts instead of Host; else empty
};

/// None for a target with a bad escape.
std::optional<HttpTarget> parse_target(std::string_view target);

/// Whether a Content-Type says JSON, with whatever parameters.
bool is_json_type(std::string_view content_type);

}  // namespace troupe
