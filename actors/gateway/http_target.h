#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

/// What a request line asks for.
struct HttpTarget {
  std::string path;       ///< percent-decoded, without the query; begins with '/'
  std::string query;      ///< as it was sent, without the '?'
  std::string authority;  ///< of "http://host:port/path", which counts instead of Host; else empty
};

/// None for a target with a bad escape.
std::optional<HttpTarget> parse_target(std::string_view target);

/// The value of this name in a query, percent-decoded; the first one, if there are several. One
/// with a bad escape is given as it is.
std::optional<std::string> query_value(std::string_view query, std::string_view name);

/// A value of a query that turns something on or off: true or 1, false or 0.
std::optional<bool> parse_switch(std::string_view value);

/// How often a query has this name.
std::size_t query_count(std::string_view query, std::string_view name);

/// Whether a Content-Type says JSON, with whatever parameters.
bool is_json_type(std::string_view content_type);

/// Whether a Content-Encoding, which is a list, says that a body is as it is: "identity".
bool is_identity(std::string_view content_encoding);

}  // namespace troupe
