#include "tests/actors/gateway/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "tests/patience.h"

namespace troupe::testing {

std::vector<std::string> HttpResponse::events() const {
  std::vector<std::string> events;
  std::size_t at = 0;
  while (at < body.size()) {
    const std::size_t end = body.find("\n\n", at);
    if (end != std::string::npos && body[at] == ':') {
      at = end + 2;
      continue;
    }
    if (end == std::string::npos || body.compare(at, 6, "data: ") != 0) {
      events.push_back("BROKEN: " + body.substr(at));
      break;
    }
    events.push_back(body.substr(at + 6, end - at - 6));
    at = end + 2;
  }
  return events;
}

HttpClient::HttpClient(std::uint16_t port, bool tls) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  const timeval wait{.tv_sec = kTestPatience.count(), .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    ::close(fd);
    return;
  }
  fd_ = fd;
  if (!tls) return;
  tls_context_ = SSL_CTX_new(TLS_client_method());
  tls_ = SSL_new(tls_context_);
  SSL_set_fd(tls_, fd_);
  ended_ = SSL_connect(tls_) != 1;
}

HttpClient::~HttpClient() {
  if (tls_ != nullptr) SSL_free(tls_);
  if (tls_context_ != nullptr) SSL_CTX_free(tls_context_);
  if (fd_ >= 0) ::close(fd_);
}

HttpClient::HttpClient(HttpClient&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      tls_context_(std::exchange(other.tls_context_, nullptr)),
      tls_(std::exchange(other.tls_, nullptr)),
      inbox_(std::move(other.inbox_)),
      ended_(other.ended_) {}

bool HttpClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto sent = tls_ != nullptr
                          ? SSL_write(tls_, bytes.data(), static_cast<int>(bytes.size()))
                          : ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

void HttpClient::half_close() { shutdown(fd_, SHUT_WR); }

bool HttpClient::fill() {
  if (ended_) return false;
  char bytes[65536];
  const auto got =
      tls_ != nullptr ? SSL_read(tls_, bytes, sizeof bytes) : ::recv(fd_, bytes, sizeof bytes, 0);
  if (got <= 0) {
    ended_ = true;
    return false;
  }
  inbox_.append(bytes, static_cast<std::size_t>(got));
  return true;
}

std::string HttpClient::receive() {
  if (inbox_.empty()) fill();
  return std::exchange(inbox_, "");
}

bool HttpClient::closed_by_peer() {
  const auto before = std::chrono::steady_clock::now();
  while (fill()) {
  }
  return std::chrono::steady_clock::now() - before < kTestPatience - std::chrono::seconds(1);
}

std::string HttpClient::line() {
  std::size_t end = inbox_.find("\r\n");
  while (end == std::string::npos) {
    if (!fill()) return "";
    end = inbox_.find("\r\n");
  }
  std::string text = inbox_.substr(0, end);
  inbox_.erase(0, end + 2);
  return text;
}

HttpResponse HttpClient::response(bool to_head) {
  HttpResponse response;
  const std::string status = line();
  if (status.size() < 12 || !status.starts_with("HTTP/1.1 ")) return response;
  for (std::string field = line(); !field.empty(); field = line()) {
    const std::size_t colon = field.find(": ");
    std::string name = field.substr(0, colon);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    response.headers[name] = field.substr(colon + 2);
  }
  const auto take = [&](std::size_t size) {
    while (inbox_.size() < size && fill()) {
    }
    std::string bytes = inbox_.substr(0, size);
    inbox_.erase(0, bytes.size());
    return bytes;
  };
  if (response.headers.contains("content-length")) {
    const std::size_t length = std::stoul(response.headers["content-length"]);
    if (!to_head) response.body = take(length);
    if (!to_head && response.body.size() != length) return {};
  } else if (response.headers["transfer-encoding"] == "chunked") {
    for (;;) {
      const std::string size_text = line();
      if (size_text.empty()) return {};  // Cut off.
      const std::size_t size = std::stoul(size_text, nullptr, 16);
      response.body += take(size);
      take(2);
      if (size == 0) break;
    }
  } else {
    while (fill()) {
    }
    response.body = std::exchange(inbox_, "");
  }
  response.status = std::stoi(status.substr(9, 3));
  return response;
}

std::string post_text(const std::string& path, std::string_view body, const std::string& headers) {
  return "POST " + path +
         " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n" + headers + "\r\n" + std::string(body);
}

HttpResponse HttpClient::ask(const std::string& method, const std::string& path,
                             const std::string& headers) {
  send(method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n");
  return response(method == "HEAD");
}

HttpResponse HttpClient::get(const std::string& path, const std::string& headers) {
  return ask("GET", path, headers);
}

HttpResponse HttpClient::post(const std::string& path, const nlohmann::json& body,
                              const std::string& headers) {
  return post_text(path, body.dump(), headers);
}

HttpResponse HttpClient::post_text(const std::string& path, std::string_view body,
                                   const std::string& headers) {
  send(testing::post_text(path, body, headers));
  return response();
}

}  // namespace troupe::testing
