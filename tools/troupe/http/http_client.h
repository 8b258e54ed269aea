#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/clock.h"
#include "runtime/result.h"
#include "tools/troupe/http/http_response.h"
#include "tools/troupe/http/url.h"

namespace troupe::http {

struct HttpRequest {
  std::string method = "GET";
  std::string target;   ///< below the path of the server's address, such as /v1/models
  std::string body{};   ///< JSON, or nothing
  Duration deadline{};  ///< until the last byte of the answer
  Duration silence{};   ///< longest time without a byte of the answer; zero: as the deadline says
  std::string range{};  ///< the field's value, such as bytes=0-99; empty: all
};

/// Who sent a request, told of its answer on the loop's thread, in this order.
class HttpReceiver {
 public:
  virtual ~HttpReceiver() = default;
  /// At most once. An error ends the exchange with it.
  virtual Status on_head(const HttpHead& head) = 0;
  /// Pieces of the body, with when they came. An error ends the exchange with it.
  virtual Status on_body(std::string_view bytes, TimePoint at) = 0;
  /// Exactly once, the last.
  virtual void on_end(Status status, TimePoint at) = 0;
};

/// One server, many requests at once, and timers: one loop of one thread. Connections are kept for
/// the next request; one that the server has closed meanwhile is not used, and a request is never
/// sent twice.
class HttpClient {
 public:
  struct Options {
    Url url;
    std::string api_key;  ///< sent as a bearer's token; empty: none
    std::vector<std::pair<std::string, std::string>> headers{};
    bool insecure = false;         ///< takes any certificate
    std::string agent = "troupe";  ///< what it calls itself
  };
  /// Looks the host up. kInvalidArgument: it has no address.
  static Result<std::unique_ptr<HttpClient>> make(Options options);
  ~HttpClient();

  /// From the loop's thread, or before run().
  void send(HttpRequest request, std::unique_ptr<HttpReceiver> receiver);
  void at(TimePoint when, std::function<void()> work);
  /// What at() still waits for is not done.
  void forget_timers();

  /// Until nothing is left to wait for. May be called again.
  void run();
  /// Ends every exchange with kCancelled and drops the timers, for good. Any thread.
  void stop();
  bool stopped() const;

  struct Impl;

 private:
  explicit HttpClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// An answer read whole.
struct HttpAnswer {
  HttpHead head;
  std::string body;
};
/// Runs the loop until the answer is there: nothing else may be under way.
Result<HttpAnswer> ask(HttpClient& client, HttpRequest request);
/// The same while the loop runs.
void ask(HttpClient& client, HttpRequest request, std::function<void(Result<HttpAnswer>)> then);

}  // namespace troupe::http
