#pragma once

// For gateway.cpp alone: it pulls in Asio and Beast.

#include "actors/gateway/server.h"

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <exception>
#include <string>
#include <type_traits>

#include "actors/gateway/exchange.h"
#include "actors/gateway/http_text.h"
#include "runtime/clock.h"
#include "runtime/limits.h"
#include "runtime/log.h"

namespace troupe {

namespace http = boost::beast::http;

/// One HTTP/1 connection. The coroutine run() reads a request, answers it, and begins again. A
/// single read is always under way while a request is computed: its end is how a client's leaving
/// shows.
///
///     idle ─► header ─► (admit) ─► body ─► workers: parse, submit ─► whole answer ──┐
///      ▲                                                         └─► stream of SSE ─┤
///      └────────────────────────── keep-alive ──────────────────────────────────────┘
///
/// GCC 12 miscompiles temporaries in co_await expressions: completion tokens and buffers are named.
template <class Stream>
class Session final : public Connection, public std::enable_shared_from_this<Session<Stream>> {
 public:
  /// `stream`: what the stream is made of.
  template <class... Args>
  explicit Session(Server& server, Args&&... stream)
      : server_(server),
        stream_(std::forward<Args>(stream)...),
        changed_(server.io),
        write_guard_(server.io),
        chunk_(new char[kChunkBytes]) {
    server_.connections.insert(this);
    server_.metrics.set_http_connections(server_.connections.size());
  }
  ~Session() override {
    server_.connections.erase(this);
    server_.metrics.set_http_connections(server_.connections.size());
  }

  void on_stop() override { notify(); }
  void on_abort() override {
    aborted_ = true;
    if (exchange_) exchange_->cancel();
    close();
    notify();
  }

  asio::awaitable<void> run() {
    bool keep = true;
    if constexpr (kTls) keep = co_await handshake();
    while (keep) keep = co_await serve_one();
    close();
  }

 private:
  using Parser = http::request_parser<http::string_body>;
  static constexpr bool kTls = !std::is_same_v<Stream, tcp::socket>;
  static constexpr std::size_t kChunkBytes = 16u << 10;
  static constexpr std::size_t kPipelinedBytesMax = 64u << 10;
  static constexpr std::size_t kWriteBytes = 256u << 10;
  static constexpr TimePoint kForever = TimePoint::max();

  tcp::socket& socket() {
    if constexpr (kTls) {
      return stream_.next_layer();
    } else {
      return stream_;
    }
  }

  void close() {
    error_code ignored;
    socket().close(ignored);
  }

  // --- Waiting --------------------------------------------------------------------------------

  void notify() { changed_.cancel(); }

  void on_news() {
    if (exchange_ && exchange_->too_slow()) on_abort();
    notify();
  }

  /// Waits for notify(), or the deadline: then false.
  asio::awaitable<bool> changed(TimePoint deadline) {
    error_code ec;
    changed_.expires_at(deadline);
    auto token = asio::redirect_error(asio::use_awaitable, ec);
    co_await changed_.async_wait(token);
    co_return ec == asio::error::operation_aborted;
  }

  /// Has one read under way; what it brings goes to inbox_.
  void start_fill() {
    if (filling_ || peer_gone_) return;
    filling_ = true;
    stream_.async_read_some(asio::buffer(chunk_.get(), kChunkBytes),
                            [self = this->shared_from_this()](error_code ec, std::size_t bytes) {
                              self->on_filled(ec, bytes);
                            });
  }

  void on_filled(error_code ec, std::size_t bytes) {
    filling_ = false;
    const auto room = inbox_.prepare(bytes);
    asio::buffer_copy(room, asio::buffer(chunk_.get(), bytes));
    inbox_.commit(bytes);
    if (ec) {
      peer_gone_ = true;
      if (exchange_) exchange_->cancel();
    } else if (exchange_ && inbox_.size() < kPipelinedBytesMax) {
      start_fill();
    }
    notify();
  }

  enum class Fill : unsigned char { kOk, kLate, kGone };
  /// Waits for more bytes than inbox_ has.
  asio::awaitable<Fill> fill(TimePoint deadline) {
    const std::size_t before = inbox_.size();
    start_fill();
    while (inbox_.size() == before) {
      if (peer_gone_ || aborted_) co_return Fill::kGone;
      const bool in_time = co_await changed(deadline);
      if (!in_time) co_return Fill::kLate;
    }
    co_return Fill::kOk;
  }

  /// Runs `work` on a worker thread.
  template <class Work>
  asio::awaitable<void> on_worker(Work work) {
    bool done = false;
    std::exception_ptr failure;
    // The references live until `done` is set. `self` moves on, so that no session ends on a
    // worker.
    asio::post(server_.workers, [&, self = this->shared_from_this()]() mutable {
      try {
        work();
      } catch (...) {
        failure = std::current_exception();
      }
      asio::post(server_.io, [&done, self = std::move(self)] {
        done = true;
        self->notify();
      });
    });
    while (!done) co_await changed(kForever);
    if (failure) std::rethrow_exception(failure);
  }

  // --- Writing --------------------------------------------------------------------------------

  /// Sends it all; false if the client is gone or did not read in time.
  asio::awaitable<bool> send(std::string_view bytes) {
    while (!bytes.empty()) {
      const std::size_t size = std::min(bytes.size(), kWriteBytes);
      write_guard_.expires_after(server_.options.write_deadline);
      write_guard_.async_wait([self = this->shared_from_this()](error_code ec) {
        if (!ec) self->close();
      });
      error_code ec;
      auto token = asio::redirect_error(asio::use_awaitable, ec);
      const auto buffer = asio::buffer(bytes.data(), size);
      co_await asio::async_write(stream_, buffer, token);
      write_guard_.cancel();
      if (ec || !socket().is_open()) co_return false;
      bytes.remove_prefix(size);
    }
    co_return true;
  }

  asio::awaitable<bool> respond(const HttpReply& reply) {
    server_.metrics.on_http_response(reply.status);
    std::string text = response_head(reply, keep_alive_);
    if (!head_only_) text += reply.body;
    const bool sent = co_await send(text);
    co_return sent&& keep_alive_;
  }

  /// For a request whose body is not read: says why, then drains for a while, so that the answer is
  /// not lost to a reset.
  asio::awaitable<bool> turn_away(ApiError error) {
    keep_alive_ = false;
    const HttpReply reply = error_reply(error);
    co_await respond(reply);
    error_code ignored;
    socket().shutdown(tcp::socket::shutdown_send, ignored);
    const TimePoint deadline = now() + limits::kHttpLingerDeadline;
    Fill filled = Fill::kOk;
    while (filled == Fill::kOk && !server_.stopping) {
      inbox_.consume(inbox_.size());
      filled = co_await fill(deadline);
    }
    co_return false;
  }

  // --- A request ------------------------------------------------------------------------------

  asio::awaitable<bool> handshake() {
    write_guard_.expires_after(limits::kHandshakeDeadline);
    write_guard_.async_wait([self = this->shared_from_this()](error_code ec) {
      if (!ec) self->close();
    });
    error_code ec;
    if constexpr (kTls) {
      auto token = asio::redirect_error(asio::use_awaitable, ec);
      co_await stream_.async_handshake(asio::ssl::stream_base::server, token);
    }
    write_guard_.cancel();
    if (ec) server_.metrics.on_garbage_connection();
    co_return !ec;
  }

  /// One request and its answer; whether the connection goes on.
  asio::awaitable<bool> serve_one() {
    const TimePoint idle_until = now() + server_.options.idle_deadline;
    while (inbox_.size() == 0) {
      if (server_.stopping || peer_gone_) co_return false;
      start_fill();
      const bool in_time = co_await changed(idle_until);
      if (!in_time) co_return false;
    }
    Parser parser;
    parser.header_limit(static_cast<std::uint32_t>(server_.options.header_bytes_max));
    parser.body_limit(server_.options.body_bytes_max);
    keep_alive_ = head_only_ = false;
    const Read head_read = co_await read_until(parser, server_.options.header_deadline, true);
    if (head_read.gone) co_return false;
    if (head_read.error) {
      const bool on = co_await turn_away(*head_read.error);
      co_return on;
    }
    const HttpHead head = head_of(parser);
    version_1_0_ = parser.get().version() < 11;
    keep_alive_ = parser.keep_alive() && !server_.stopping;
    head_only_ = head.method == "HEAD";

    Route route{};
    std::optional<ApiError> refusal = server_.api.admit(head, route);
    if (server_.stopping && !refusal) {
      refusal =
          to_api_error(unavailable("The server is stopping; ask another or try again later."));
    }
    if (refusal && !parser.is_done()) {
      const bool on = co_await turn_away(*refusal);
      co_return on;
    }
    if (refusal) {
      const HttpReply reply = error_reply(*refusal);
      const bool on = co_await respond(reply);
      co_return on;
    }
    const bool on = co_await serve_admitted(parser, head, route);
    co_return on;
  }

  asio::awaitable<bool> serve_admitted(Parser& parser, const HttpHead& head, Route route) {
    struct BodyShare {  // Gives back what the body took of the common allowance.
      Server& server;
      std::size_t bytes = 0;
      ~BodyShare() { server.bodies_bytes -= bytes; }
    };
    BodyShare share{server_};
    if (!parser.is_done()) {
      if (boost::beast::iequals(parser.get()[http::field::expect], "100-continue")) {
        const bool sent = co_await send("HTTP/1.1 100 Continue\r\n\r\n");
        if (!sent) co_return false;
      }
      const Read body_read =
          co_await read_until(parser, server_.options.body_deadline, false, &share.bytes);
      if (body_read.gone) co_return false;
      if (body_read.error) {
        const bool on = co_await turn_away(*body_read.error);
        co_return on;
      }
    }
    if (Api::generates(route)) {
      const bool on = co_await generate(route, parser.get().body());
      co_return on;
    }
    HttpReply reply;
    if (route == Route::kHealth) {  // Probes must not wait for the workers.
      reply = server_.api.reply(route, head, "");
    } else {
      const auto work = [&] { reply = server_.api.reply(route, head, parser.get().body()); };
      co_await on_worker(work);
    }
    const bool on = co_await respond(reply);
    co_return on;
  }

  struct Read {
    bool gone = false;
    std::optional<ApiError> error = {};
  };

  /// Feeds the parser until the header, or the whole request, is there. `share` counts body bytes
  /// against the common allowance.
  asio::awaitable<Read> read_until(Parser& parser, std::chrono::milliseconds within,
                                   bool header_only, std::size_t* share = nullptr) {
    const TimePoint deadline = now() + within;
    parser.eager(!header_only);
    bool starved = inbox_.size() == 0;
    for (;;) {
      if (header_only ? parser.is_header_done() : parser.is_done()) co_return Read{};
      if (starved) {
        const Fill filled = co_await fill(deadline);
        if (filled == Fill::kGone) co_return Read{.gone = true};
        if (filled == Fill::kLate) co_return Read{.error = late_request_error()};
      }
      error_code ec;
      const std::size_t used = parser.put(inbox_.data(), ec);
      inbox_.consume(used);
      starved = inbox_.size() == 0 || ec == http::error::need_more;
      if (ec && ec != http::error::need_more) co_return Read{.error = parse_error(ec)};
      if (share == nullptr) continue;
      const std::size_t grown = parser.get().body().size() - *share;
      *share += grown;
      server_.bodies_bytes += grown;
      if (server_.bodies_bytes > server_.options.bodies_bytes_max) {
        co_return Read{.error = to_api_error(unavailable(
                           "The server is receiving too much at once; try again in a moment."))};
      }
    }
  }

  ApiError parse_error(error_code ec) const {
    if (ec == http::error::body_limit) return body_too_large_error(server_.options.body_bytes_max);
    if (ec == http::error::header_limit) {
      return header_too_large_error(server_.options.header_bytes_max);
    }
    server_.metrics.on_garbage_connection();
    return bad_http_error(ec.message());
  }

  static HttpHead head_of(const Parser& parser) {
    const auto& request = parser.get();
    const std::string_view target(request.target().data(), request.target().size());
    const auto authorization = request[http::field::authorization];
    const auto method = request.method_string();
    return {.method = std::string(method.data(), method.size()),
            .path = std::string(target.substr(0, target.find_first_of("?#"))),
            .authorization = std::string(authorization.data(), authorization.size())};
  }

  // --- Generation -----------------------------------------------------------------------------

  /// Keeps exchange_ for the time of one answer, and ends what still runs when that is over.
  struct ExchangeScope {
    Session& session;
    explicit ExchangeScope(Session& s) : session(s) {
      session.exchange_ = std::make_shared<Exchange>(
          s.server_.service, s.server_.model, s.server_.options.unsent_bytes_max,
          [weak = s.weak_from_this(), io = &s.server_.io] {
            asio::post(*io, [weak] {
              if (const auto self = weak.lock()) self->on_news();
            });
          });
    }
    ~ExchangeScope() {
      session.exchange_->cancel();
      session.exchange_.reset();
    }
  };

  asio::awaitable<bool> generate(Route route, std::string& body) {
    const ExchangeScope scope(*this);
    start_fill();
    std::optional<ApiError> error = {};
    const auto submit = [&] {
      ApiRequest request;
      error = server_.api.parse(route, body, request);
      std::string().swap(body);
      if (!error) error = exchange_->submit(std::move(request));
    };
    co_await on_worker(submit);
    if (peer_gone_ || aborted_) co_return false;
    if (error) {
      const HttpReply reply = error_reply(*error);
      const bool on = co_await respond(reply);
      co_return on;
    }
    bool on = false;
    if (exchange_->stream()) {
      on = co_await stream_answer();
    } else {
      on = co_await whole_answer();
    }
    co_return on;
  }

  asio::awaitable<bool> whole_answer() {
    Exchange::News news = exchange_->take();
    while (!news.done && !news.error) {
      if (peer_gone_ || aborted_) co_return false;
      co_await changed(kForever);
      news = exchange_->take();
    }
    HttpReply reply;
    if (news.error) {
      reply = error_reply(*news.error);
    } else {
      const auto render = [&] { reply.body = exchange_->whole(); };
      co_await on_worker(render);
    }
    const bool on = co_await respond(reply);
    co_return on;
  }

  /// The header goes out with the first news, so that an error before it has its own status code.
  asio::awaitable<bool> stream_answer() {
    bool begun = false;
    for (;;) {
      Exchange::News news = exchange_->take();
      if (peer_gone_ || aborted_) co_return false;
      if (news.error && !begun) {
        const HttpReply reply = error_reply(*news.error);
        const bool on = co_await respond(reply);
        co_return on;
      }
      if (news.error) news.bytes += Answer::stream_error(*news.error);
      std::string out;
      if (!begun && !news.bytes.empty()) {
        begun = true;
        server_.metrics.on_http_response(200);
        out = stream_head(keep_alive_, version_1_0_);
      }
      if (version_1_0_) {
        out += news.bytes;
      } else {
        append_chunk(out, news.bytes);
      }
      const bool last = news.done || news.error.has_value();
      if (last && !version_1_0_) out += kLastChunk;
      const bool sent = co_await send(out);
      if (!sent) co_return false;
      if (last) co_return keep_alive_ && !version_1_0_;
      if (out.empty()) co_await changed(kForever);
    }
  }

  Server& server_;
  Stream stream_;
  asio::steady_timer changed_;      // Never for its time only: cancelled when something changed.
  asio::steady_timer write_guard_;  // Closes the connection of a client that does not read.
  const std::unique_ptr<char[]> chunk_;
  boost::beast::flat_buffer inbox_;  // Received and not yet parsed.
  std::shared_ptr<Exchange> exchange_;
  bool filling_ = false;
  bool peer_gone_ = false;
  bool aborted_ = false;
  bool keep_alive_ = false;
  bool head_only_ = false;
  bool version_1_0_ = false;
};

}  // namespace troupe
