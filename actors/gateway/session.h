#pragma once

// For gateway.cpp alone: it pulls in Asio and Beast.

#include "actors/gateway/http_wire.h"

#include <boost/beast/core/string.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <string>

#include "actors/gateway/exchange.h"
#include "actors/gateway/http_target.h"
#include "actors/gateway/http_text.h"
#include "actors/gateway/responses_request.h"

namespace troupe {

namespace http = boost::beast::http;

/// One HTTP/1 connection. The coroutine run() reads a request, answers it, and begins again.
///
///     idle ─► header ─► (admit) ─► body ─► workers: parse, submit ─► whole answer ──┐
///      ▲                                                         └─► stream of SSE ─┤
///      └────────────────────────── keep-alive ──────────────────────────────────────┘
template <class Stream>
class Session final : public HttpWire<Stream> {
 public:
  template <class... Args>
  explicit Session(Server& server, Args&&... stream)
      : Base(server, std::forward<Args>(stream)...) {}

  void on_stop() override { notify(); }
  void on_abort() override {
    aborted_ = true;
    on_gone();
    close();
    notify();
  }

  asio::awaitable<void> run() {
    bool keep = co_await Base::handshake();
    if (keep) {
      while (keep) keep = co_await serve_one();
      co_await Base::say_goodbye();
    }
    close();
  }

 private:
  using Base = HttpWire<Stream>;
  using Fill = typename Base::Fill;
  using Parser = http::request_parser<http::string_body>;
  using Base::aborted_;
  using Base::changed;
  using Base::close;
  using Base::fill;
  using Base::inbox_;
  using Base::input_ended_;
  using Base::kForever;
  using Base::notify;
  using Base::on_worker;
  using Base::peer_gone_;
  using Base::send;
  using Base::send_head;
  using Base::server_;

  void on_gone() override {
    if (exchange_) exchange_->cancel();
  }
  bool computing() const override { return exchange_ != nullptr; }

  void on_news() {
    if (exchange_ && exchange_->too_slow()) on_abort();
    notify();
  }

  // --- Answers --------------------------------------------------------------------------------

  asio::awaitable<bool> respond(HttpReply reply) {
    server_.metrics.on_http_response(reply.status);
    add_fields(reply);
    std::string text = response_head(reply, BodyEnd::kLength, keep_alive_);
    if (!head_only_) text += reply.body;
    const bool sent = co_await send_head(text);
    co_return sent&& keep_alive_;
  }

  void add_fields(HttpReply& reply) const {
    reply.headers.insert(reply.headers.end(), fields_.begin(), fields_.end());
  }

  /// Of an answer without a length.
  std::string open_head(HttpReply reply) {
    server_.metrics.on_http_response(reply.status);
    add_fields(reply);
    return response_head(reply, version_1_0_ ? BodyEnd::kClose : BodyEnd::kChunks, keep_alive_);
  }
  void append_body(std::string& out, std::string_view bytes, bool last) const {
    if (version_1_0_) {
      out += bytes;
      return;
    }
    append_chunk(out, bytes);
    if (last) out += kLastChunk;
  }

  /// For a request whose body is not read: says why, and ends the connection.
  asio::awaitable<bool> turn_away(ApiError error) {
    keep_alive_ = false;
    HttpReply reply = error_reply(error);
    co_await respond(std::move(reply));
    co_await Base::linger();
    co_return false;
  }

  // --- A request ------------------------------------------------------------------------------

  /// One request and its answer; whether the connection goes on.
  asio::awaitable<bool> serve_one() {
    const TimePoint idle_until = now() + server_.options.deadlines.idle;
    bool skipped = false;
    while (!begun(skipped)) {
      if (server_.stopping || input_ended_) co_return false;
      Base::start_fill();
      const bool in_time = co_await changed(idle_until);
      if (!in_time) co_return false;
    }
    Parser parser;
    parser.header_limit(static_cast<std::uint32_t>(server_.options.header_bytes_max));
    parser.body_limit(server_.options.body_bytes_max);
    keep_alive_ = head_only_ = false;
    fields_.clear();
    const Read head_read = co_await read_until(parser, server_.options.deadlines.header, true);
    if (head_read.gone) co_return false;
    if (head_read.error) {
      const bool on = co_await turn_away(*head_read.error);
      co_return on;
    }
    version_1_0_ = parser.get().version() < 11;
    HttpHead head;
    if (const std::string fault = read_head(parser, head); !fault.empty()) {
      server_.metrics.on_garbage_connection();
      ApiError error = bad_http_error(fault);
      const bool on = co_await turn_away(std::move(error));
      co_return on;
    }
    keep_alive_ = parser.keep_alive() && !server_.stopping;
    head_only_ = head.method == "HEAD";
    fields_ = server_.api.fields_for(head);

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
      HttpReply reply = error_reply(*refusal);
      const bool on = co_await respond(std::move(reply));
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
          co_await read_until(parser, server_.options.deadlines.body, false, &share.bytes);
      if (body_read.gone) co_return false;
      if (body_read.error) {
        const bool on = co_await turn_away(*body_read.error);
        co_return on;
      }
    }
    if (Api::generates(route) || Api::finds(route)) {
      const bool on = co_await generate(route, head, parser.get().body());
      co_return on;
    }
    HttpReply reply;
    if (route == Route::kHealth) {  // Probes must not wait for the workers.
      reply = server_.api.reply(route, head, "");
    } else {
      const auto work = [&] { reply = server_.api.reply(route, head, parser.get().body()); };
      co_await on_worker(parser.get().body().size(), work);
    }
    const bool on = co_await respond(std::move(reply));
    co_return on;
  }

  /// Whether a request has begun to arrive. One empty line before it is skipped (RFC 9112, 2.2).
  bool begun(bool& skipped) {
    const auto bytes = inbox_.data();
    const std::string_view text(static_cast<const char*>(bytes.data()), bytes.size());
    if (!skipped && text == "\r") return false;
    if (!skipped && text.starts_with("\r\n")) {
      skipped = true;
      inbox_.consume(2);
    }
    return inbox_.size() > 0;
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

  /// What is wrong with it, or nothing.
  static std::string read_head(const Parser& parser, HttpHead& head) {
    const auto& request = parser.get();
    const auto text = [](auto view) { return std::string(view.data(), view.size()); };
    const auto field = [&](http::field name) { return text(request[name]); };
    // Whoever reads another end of the body than a proxy before us would take its rest for a
    // request.
    const auto codings = request.count(http::field::transfer_encoding);
    if (codings > 0 && (codings > 1 || request.version() < 11 ||
                        !boost::beast::iequals(request[http::field::transfer_encoding], "chunked")))
      return "Transfer-Encoding may be chunked and nothing else";
    const auto hosts = request.count(http::field::host);
    if (hosts > 1 || (hosts == 0 && request.version() >= 11)) return "it must have one Host field";
    auto target = parse_target({request.target().data(), request.target().size()});
    if (!target) return "its path has a percent sign that no two hexadecimal digits follow";
    head.method = text(request.method_string());
    head.path = std::move(target->path);
    head.query = std::move(target->query);
    if (hosts == 1) head.host = field(http::field::host);
    if (!target->authority.empty()) head.host = std::move(target->authority);
    head.authorization = field(http::field::authorization);
    head.content_type = field(http::field::content_type);
    head.origin = field(http::field::origin);
    head.requested_method = field(http::field::access_control_request_method);
    head.requested_headers = field(http::field::access_control_request_headers);
    head.last_event_id = text(request["Last-Event-ID"]);
    const auto [first, last] = request.equal_range("Idempotency-Key");
    for (auto it = first; it != last; ++it) head.idempotency_keys.push_back(text(it->value()));
    return "";
  }

  // --- Generation -----------------------------------------------------------------------------

  /// Keeps exchange_ for the time of one answer, and ends what still runs when that is over.
  struct ExchangeScope {
    Session& session;
    explicit ExchangeScope(Session& s) : session(s) {
      session.exchange_ =
          std::make_shared<Exchange>(s.server_.service, s.server_.requests, s.server_.model,
                                     s.server_.options.unsent_bytes_max, s.server_.answers,
                                     [weak = s.weak_from_this(), io = &s.server_.io] {
                                       asio::post(*io, [weak] {
                                         if (const auto self = weak.lock())
                                           static_cast<Session&>(*self).on_news();
                                       });
                                     });
    }
    ~ExchangeScope() {
      session.exchange_->cancel();
      session.exchange_.reset();
    }
  };

  std::optional<ApiError> submit(Route route, const HttpHead& head, std::string& body) {
    ApiRequest request;
    const Asker asker = server_.api.asker(route, head, body);
    const auto wrong = server_.api.parse(route, asker, body, request);
    std::string().swap(body);
    if (wrong) return wrong;
    auto error = exchange_->submit(std::move(request), asker);
    return error && route == Route::kResponses ? as_response_error(*error) : error;
  }

  std::optional<ApiError> attach(Route route, const HttpHead& head) {
    FoundRequest found;
    if (auto error = server_.api.find(head, found)) return error;
    std::optional<TokenCounts> from;
    if (route == Route::kRequestEvents) {
      if (auto error = Api::read_from(head, found.choices(), from.emplace())) return error;
    }
    return exchange_->attach(std::move(found), std::move(from));
  }

  /// Answers with what is generated, or was for an earlier request.
  asio::awaitable<bool> generate(Route route, const HttpHead& head, std::string& body) {
    const ExchangeScope scope(*this);
    Base::start_fill();
    std::optional<ApiError> error = {};
    const bool accepts = Api::generates(route);
    const auto open = [&] { error = accepts ? submit(route, head, body) : attach(route, head); };
    co_await on_worker(body.size(), open);
    if (peer_gone_ || aborted_) co_return false;
    if (accepts && !error) fields_.emplace_back("X-Request-Id", exchange_->id());
    if (error) {
      HttpReply reply = error_reply(*error);
      const bool on = co_await respond(std::move(reply));
      co_return on;
    }
    bool on = false;
    if (exchange_->stream()) {
      on = co_await stream_answer(accepts);
    } else {
      on = co_await whole_answer();
    }
    co_return on;
  }

  asio::awaitable<bool> whole_answer() {
    Exchange::News news = exchange_->take();
    while (!news.done && !news.error) {
      if (peer_gone_ || aborted_) co_return false;
      if (Base::wants_head_early()) {
        const bool there = co_await Base::begin_head_early();
        if (!there) co_return false;
      } else {
        co_await changed(kForever);
      }
      news = exchange_->take();
    }
    HttpReply reply;
    if (news.error) {
      reply = error_reply(*news.error);
    } else {
      bool last = false;
      const auto write = [&] { last = exchange_->write_piece(reply.body); };
      co_await on_worker(0, write);
      if (!last) {
        const bool on = co_await send_in_pieces(std::move(reply.body));
        co_return on;
      }
    }
    const bool on = co_await respond(std::move(reply));
    co_return on;
  }

  /// An answer that is too large to be held twice, as tokens and as JSON: the next piece is written
  /// when the client has taken one.
  asio::awaitable<bool> send_in_pieces(std::string piece) {
    std::string out = open_head({});
    bool sent = co_await send_head(out);
    for (bool last = false;;) {
      out.clear();
      append_body(out, piece, last);
      if (sent) sent = co_await send(out);
      if (!sent) co_return false;
      if (last) co_return keep_alive_ && !version_1_0_;
      piece.clear();
      const auto write = [&] { last = exchange_->write_piece(piece); };
      co_await on_worker(0, write);
    }
  }

  /// The head goes out with the first news, so that an error before it has its own status code.
  /// `fresh`: also one that comes with them; of an earlier request, what it has comes first.
  asio::awaitable<bool> stream_answer(bool fresh) {
    bool begun = false;
    for (;;) {
      Exchange::News news = exchange_->take();
      if (peer_gone_ || aborted_) co_return false;
      if (news.error && !begun && (fresh || news.bytes.empty())) {
        HttpReply reply = error_reply(*news.error);
        const bool on = co_await respond(std::move(reply));
        co_return on;
      }
      if (news.error) news.bytes += exchange_->stream_error(*news.error);
      const bool last = news.done || news.error.has_value();
      if (news.bytes.empty() && !last) {
        if (begun || !Base::wants_head_early()) {
          co_await changed(kForever);
          continue;
        }
        const bool there = co_await Base::begin_head_early();
        if (!there) co_return false;
        continue;
      }
      std::string out;
      if (!begun) out = open_head(stream_reply());
      append_body(out, news.bytes, last);
      bool sent = false;
      if (std::exchange(begun, true)) {
        sent = co_await send(out);
      } else {
        sent = co_await send_head(out);
      }
      if (!sent) co_return false;
      if (last) co_return keep_alive_ && !version_1_0_;
    }
  }

  std::shared_ptr<Exchange> exchange_;
  HttpFields fields_;  // Of every answer to the request.
  bool keep_alive_ = false;
  bool head_only_ = false;
  bool version_1_0_ = false;
};

}  // namespace troupe
