#pragma once

#include <openssl/ssl.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::testing {

struct HttpResponse {
  int status = 0;                              ///< 0: the connection ended before an answer
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string body;                            ///< chunks joined
  nlohmann::json json() const { return nlohmann::json::parse(body); }
  /// The data of the server-sent events, [DONE] included; without comments.
  std::vector<std::string> events() const;
};

/// A plain blocking socket to 127.0.0.1; every wait ends after 20 s.
class HttpClient {
 public:
  explicit HttpClient(std::uint16_t port, bool tls = false);
  ~HttpClient();
  HttpClient(HttpClient&& other) noexcept;
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  bool connected() const { return fd_ >= 0; }
  /// False if the peer has closed.
  /// Sends no more, and still reads.
  void half_close();
  bool send(std::string_view bytes);
  /// Bytes are here, or come within the wait. They stay unread.
  bool arrived() { return !inbox_.empty() || fill(); }
  /// Some bytes; empty at the end of the stream or after the wait.
  std::string receive();
  /// The end of the stream comes within the wait.
  bool closed_by_peer();
  /// TLS: the server said that nothing follows.
  bool ended_in_order() const {
    return tls_ != nullptr && (SSL_get_shutdown(tls_) & SSL_RECEIVED_SHUTDOWN) != 0;
  }
  HttpResponse response(bool to_head = false);
  /// A request without a body.
  HttpResponse ask(const std::string& method, const std::string& path,
                   const std::string& headers = "");
  HttpResponse get(const std::string& path, const std::string& headers = "");
  HttpResponse post(const std::string& path, const nlohmann::json& body,
                    const std::string& headers = "");
  HttpResponse post_text(const std::string& path, std::string_view body,
                         const std::string& headers = "");

 private:
  bool fill();  ///< more into inbox_
  std::string line();

  int fd_ = -1;
  SSL_CTX* tls_context_ = nullptr;
  SSL* tls_ = nullptr;
  std::string inbox_;
  bool ended_ = false;
};

/// The beginning of a completion's header.
inline const std::string kPostCompletion =
    "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
std::string post_text(const std::string& path, std::string_view body,
                      const std::string& headers = "");

}  // namespace troupe::testing
