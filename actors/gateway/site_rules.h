#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/gateway/api_error.h"
#include "runtime/result.h"

namespace troupe {

/// Whom the browser of a person near this server may speak for: without these rules every web page
/// could use the server, by a request of its own (Origin) or under a name of its own that it lets
/// point here (Host).
class SiteRules {
 public:
  struct Options {
    std::vector<std::string> hosts;    ///< names besides addresses, localhost and this machine's
    std::vector<std::string> origins;  ///< "https://host[:port]", "null", or "*" for all
  };
  /// Errors name the flag.
  static Status check(const Options& options);
  explicit SiteRules(Options options);

  /// `host`: the Host field, or the authority of an absolute target; none: HTTP/1.0 without it.
  /// `origin`: the Origin field; empty: no browser, or the page of this server.
  std::optional<ApiError> admit(const std::optional<std::string>& host,
                                std::string_view origin) const;

  /// Whether pages of other sites may come at all, so that answers depend on who asks.
  bool lets_others_in() const { return !options_.origins.empty(); }

 private:
  bool knows_host(std::string_view authority) const;
  bool allows(std::string_view origin) const;

  const Options options_;  // In lower case.
};

}  // namespace troupe
