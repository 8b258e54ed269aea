#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/result.h"

namespace troupe::http {

/// Where a server is: http://HOST[:PORT][/PATH], or https.
struct Url {
  bool tls = false;
  std::string host;  ///< an IPv6 address without its brackets
  std::uint16_t port = 80;
  std::string path;  ///< "" or "/api", without a slash at its end

  /// As the Host field has it.
  std::string authority() const;
  std::string text() const;
};

/// kInvalidArgument says what is wrong with it, and names the flag that it came from. A path that
/// ends with /v1 loses that: it is part of every endpoint.
Result<Url> parse_url(std::string_view text, std::string_view flag = "--base-url");

}  // namespace troupe::http
