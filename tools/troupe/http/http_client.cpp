#include "tools/troupe/http/http_client.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/buffer.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <optional>
#include <set>
#include <string>

#include "runtime/version.h"
#include "tools/troupe/http/limits.h"

namespace troupe::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

/// Small enough that no connection keeps the loop from the others for long.
constexpr std::size_t kReadBytes = 16 << 10;
/// A timer that is later than that may have overtaken what was waiting for us to read it.
constexpr Duration kLateMax = std::chrono::milliseconds(100);
/// Servers close what is idle for some seconds: before that, we do.
constexpr Duration kIdleMax = std::chrono::seconds(4);

class Exchange;

}  // namespace

struct HttpClient::Impl {
  explicit Impl(Options given) : options(std::move(given)) {}

  Options options;
  asio::io_context io{1};
  std::optional<asio::ssl::context> tls;
  std::vector<tcp::endpoint> endpoints;
  std::set<Exchange*> running;
  std::vector<std::pair<std::shared_ptr<Exchange>, TimePoint>> idle;  // the newest is the last
  std::set<std::shared_ptr<asio::steady_timer>> timers;
  std::atomic<bool> stopped{false};
};

namespace {

/// A connection and the exchange that it carries, one after the other.
///
///     connect -> handshake (https) -> write | read ... -> done -> idle -> write ...
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  explicit Exchange(HttpClient::Impl& client) : client_(client), timer_(client.io) {
    if (client_.tls)
      tls_.emplace(client_.io, *client_.tls);
    else
      plain_.emplace(client_.io);
  }
  ~Exchange() { client_.running.erase(this); }

  void begin(HttpRequest request, std::unique_ptr<HttpReceiver> receiver) {
    client_.running.insert(this);
    request_ = std::move(request);
    receiver_ = std::move(receiver);
    deadline_ = now() + request_.deadline;
    written_ = false;
    response_.emplace(HttpResponse::Sink{
        [this](const HttpHead& head) { return receiver_->on_head(head); },
        [this](std::string_view bytes) { return receiver_->on_body(bytes, read_at_); }});
    write_head();
    if (socket().is_open()) return exchange();
    guard(std::min(deadline_, now() + kConnectDeadline),
          "The server did not take the connection in time");
    connect();
  }

  /// Whether the server still holds it: an end of it would be waiting to be read.
  bool usable() {
    char byte = 0;
    return socket().is_open() &&
           ::recv(socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
           (errno == EAGAIN || errno == EWOULDBLOCK);
  }

  void end(Status status) {
    if (!receiver_) return;
    timer_.cancel();
    const auto receiver = std::move(receiver_);
    client_.running.erase(this);
    if (status.ok() && response_->keep_alive() && written_ && !client_.stopped) {
      client_.idle.emplace_back(shared_from_this(), now());
    } else {
      error_code ignored;
      socket().close(ignored);
    }
    receiver->on_end(std::move(status), now());
  }

 private:
  tcp::socket& socket() { return tls_ ? tls_->next_layer() : *plain_; }

  void write_head() {
    const auto& o = client_.options;
    head_ = request_.method + " " + o.url.path + request_.target +
            " HTTP/1.1\r\nHost: " + o.url.authority() + "\r\nUser-Agent: " + o.agent + "/" +
            std::string(kVersion) + "\r\nAccept-Encoding: identity\r\n";
    if (!o.api_key.empty()) head_ += "Authorization: Bearer " + o.api_key + "\r\n";
    if (!request_.range.empty()) head_ += "Range: " + request_.range + "\r\n";
    for (const auto& [name, value] : o.headers) head_ += name + ": " + value + "\r\n";
    if (request_.method != "GET")
      head_ += "Content-Type: application/json\r\nContent-Length: " +
               std::to_string(request_.body.size()) + "\r\n";
    head_ += "\r\n";
  }

  /// The time by which this loop is late is not the server's: that is granted, once.
  void guard(TimePoint deadline, const char* why, bool granted = false) {
    timer_.expires_at(deadline);
    timer_.async_wait([self = shared_from_this(), why, granted](error_code ec) {
      const Duration late = now() - self->timer_.expiry();
      // One that ran out just as the next was set says nothing.
      if (ec || late < Duration::zero()) return;
      if (late > kLateMax && !granted) return self->guard(now() + late, why, true);
      self->end(deadline_exceeded(why));
    });
  }

  void guard_answer() {
    const bool quiet = request_.silence > Duration::zero() && now() + request_.silence < deadline_;
    guard(quiet ? now() + request_.silence : deadline_,
          quiet ? "The server fell silent" : "The answer did not end in time");
  }

  void connect() {
    asio::async_connect(socket(), client_.endpoints,
                        [self = shared_from_this()](error_code ec, const tcp::endpoint&) {
                          if (!self->receiver_) return;
                          if (ec) return self->end(unavailable("Cannot connect: " + ec.message()));
                          error_code ignored;
                          self->socket().set_option(tcp::no_delay(true), ignored);
                          self->tls_ ? self->handshake() : self->exchange();
                        });
  }

  void handshake() {
    const std::string& host = client_.options.url.host;
    SSL_set_tlsext_host_name(tls_->native_handle(), host.c_str());
    if (!client_.options.insecure)
      tls_->set_verify_callback(asio::ssl::host_name_verification(host));
    tls_->async_handshake(asio::ssl::stream_base::client,
                          [self = shared_from_this()](error_code ec) {
                            if (!self->receiver_) return;
                            if (ec) return self->end(unavailable("No TLS: " + ec.message()));
                            self->exchange();
                          });
  }

  void exchange() {
    guard_answer();
    const auto wrote = [self = shared_from_this()](error_code ec, std::size_t) {
      // What a write that failed means shows in what can be read.
      if (!ec) self->written_ = true;
    };
    const std::array<asio::const_buffer, 2> out{asio::buffer(head_), asio::buffer(request_.body)};
    if (tls_)
      asio::async_write(*tls_, out, wrote);
    else
      asio::async_write(*plain_, out, wrote);
    read();
  }

  void read() {
    const auto got = [self = shared_from_this()](error_code ec, std::size_t bytes) {
      if (self->receiver_) self->on_read(ec, bytes);
    };
    if (tls_)
      tls_->async_read_some(asio::buffer(buffer_), got);
    else
      plain_->async_read_some(asio::buffer(buffer_), got);
  }

  void on_read(error_code ec, std::size_t bytes) {
    read_at_ = now();
    if (ec) {
      Status status = response_->finish();
      const bool plain_end = ec == asio::error::eof || ec == asio::ssl::error::stream_truncated;
      if (!plain_end && status.ok()) status = unavailable(ec.message());
      return end(std::move(status));
    }
    if (Status status = response_->feed({buffer_.data(), bytes}); !status.ok())
      return end(std::move(status));
    if (response_->done()) return end({});
    if (request_.silence > Duration::zero()) guard_answer();
    read();
  }

  HttpClient::Impl& client_;
  std::optional<asio::ssl::stream<tcp::socket>> tls_;
  std::optional<tcp::socket> plain_;
  asio::steady_timer timer_;
  HttpRequest request_;
  std::string head_;
  std::unique_ptr<HttpReceiver> receiver_;  // none: idle, or at its end
  std::optional<HttpResponse> response_;
  TimePoint deadline_{}, read_at_{};
  bool written_ = false;
  std::array<char, kReadBytes> buffer_;
};

/// Reads an answer whole.
class Whole : public HttpReceiver {
 public:
  explicit Whole(std::function<void(Result<HttpAnswer>)> then) : then_(std::move(then)) {}
  Status on_head(const HttpHead& head) override {
    answer_.head = head;
    return {};
  }
  Status on_body(std::string_view bytes, TimePoint) override {
    answer_.body += bytes;
    return {};
  }
  void on_end(Status status, TimePoint) override {
    if (status.ok())
      then_(std::move(answer_));
    else
      then_(status.error());
  }

 private:
  std::function<void(Result<HttpAnswer>)> then_;
  HttpAnswer answer_;
};

}  // namespace

HttpClient::HttpClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpClient::~HttpClient() {
  stop();
  run();
}

Result<std::unique_ptr<HttpClient>> HttpClient::make(Options options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  const Url& url = impl->options.url;
  error_code ec;
  tcp::resolver resolver(impl->io);
  for (const auto& entry : resolver.resolve(url.host, std::to_string(url.port), ec))
    impl->endpoints.push_back(entry.endpoint());
  if (ec || impl->endpoints.empty())
    return invalid_argument("'" + url.host + "' has no address: " + ec.message() + ".");
  if (url.tls) {
    impl->tls.emplace(asio::ssl::context::tls_client);
    impl->tls->set_default_verify_paths(ec);
    impl->tls->set_verify_mode(impl->options.insecure ? asio::ssl::verify_none
                                                      : asio::ssl::verify_peer);
  }
  return std::unique_ptr<HttpClient>(new HttpClient(std::move(impl)));
}

void HttpClient::send(HttpRequest request, std::unique_ptr<HttpReceiver> receiver) {
  if (impl_->stopped) return receiver->on_end(cancelled("The run was ended"), now());
  while (!impl_->idle.empty()) {
    const auto [exchange, since] = std::move(impl_->idle.back());
    impl_->idle.pop_back();
    if (now() - since > kIdleMax || !exchange->usable()) continue;
    return exchange->begin(std::move(request), std::move(receiver));
  }
  std::make_shared<Exchange>(*impl_)->begin(std::move(request), std::move(receiver));
}

void HttpClient::at(TimePoint when, std::function<void()> work) {
  if (impl_->stopped) return;
  auto timer = std::make_shared<asio::steady_timer>(impl_->io, when);
  impl_->timers.insert(timer);
  timer->async_wait([this, timer, work = std::move(work)](error_code ec) {
    // One that has run out already is forgotten all the same.
    if (impl_->timers.erase(timer) > 0 && !ec) work();
  });
}

void HttpClient::forget_timers() {
  for (const auto& timer : std::exchange(impl_->timers, {})) timer->cancel();
}

void HttpClient::run() {
  impl_->io.restart();
  impl_->io.run();
}

void HttpClient::stop() {
  impl_->stopped = true;
  asio::post(impl_->io, [this] {
    forget_timers();
    impl_->idle.clear();
    std::vector<std::shared_ptr<Exchange>> running;
    for (Exchange* exchange : impl_->running) running.push_back(exchange->shared_from_this());
    for (const auto& exchange : running) exchange->end(cancelled("The run was ended"));
  });
}

bool HttpClient::stopped() const { return impl_->stopped; }

void ask(HttpClient& client, HttpRequest request, std::function<void(Result<HttpAnswer>)> then) {
  client.send(std::move(request), std::make_unique<Whole>(std::move(then)));
}

Result<HttpAnswer> ask(HttpClient& client, HttpRequest request) {
  std::optional<Result<HttpAnswer>> answer;
  ask(client, std::move(request), [&](Result<HttpAnswer> given) { answer = std::move(given); });
  client.run();
  return answer ? std::move(*answer) : Result<HttpAnswer>(internal_error("No answer was read"));
}

}  // namespace troupe::http
