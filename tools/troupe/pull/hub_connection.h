#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/clock.h"
#include "runtime/result.h"
#include "tools/troupe/http/http_client.h"

namespace troupe::pull {

/// How to speak to an endpoint.
struct HubOptions {
  http::Url url;
  std::string token;   ///< given to the endpoint only, never to whom it redirects; empty: none
  Duration silence{};  ///< longest time that a server may say nothing
};

/// One thread's connections to an endpoint, and to whom it redirects.
class HubConnection {
 public:
  explicit HubConnection(HubOptions options);
  ~HubConnection();

  /// An answer read whole. `target` is below the endpoint's address, or an address of its own.
  Result<http::HttpAnswer> get(const std::string& target);

  /// A part of a file, in pieces, in order; `of` is the whole file's size. An error of the sink
  /// ends it. Errors: kNotFound, kRefused (a token is missing, or a
  /// redirection leads nowhere), kUnavailable, kDeadlineExceeded,
  /// kCorrupt (it does not keep to HTTP); each is one sentence.
  struct Part {
    std::uint64_t first = 0, size = 0, of = 0;
  };
  Status fetch(const std::string& target, const Part& part,
               const std::function<Status(std::string_view)>& sink);

 private:
  struct Place {
    http::Url url;
    std::string target;
  };
  Result<http::HttpClient*> client_of(const http::Url& url);
  Result<Place> place_of(const std::string& target) const;
  Result<Place> redirected(const Place& from, const std::string& location) const;
  Status status_of(const http::HttpHead& head, const std::string& target) const;

  const HubOptions options_;
  std::map<std::string, std::unique_ptr<http::HttpClient>> clients_;
};

}  // namespace troupe::pull
