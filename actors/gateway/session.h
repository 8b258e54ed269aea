#pragma once

// For gateway.cpp alone: it pulls in Asio and Beast.

#include "actors/gateway/http_wire.h"

#include <optional>
#include <string>

#include "actors/gateway/exchange.h"
#include "actors/gateway/http_text.h"
#include "actors/gateway/incoming_body.h"
#include "actors/gateway/reader_place.h"
#include "actors/gateway/request_log.h"
#include "actors/gateway/request_parser.h"
#include "runtime/log.h"

namespace troupe {

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
    if (!cut_off_) cut_off_ = "cut off, for the head ended,";
    on_gone();
    close();
    notify();
  }

  asio::awaitable<void> run() {
    bool keep = co_await Base::handshake();
    if (keep) {
      while (keep) {
        served_.reset();
        keep = co_await serve_one();
        note_served();
      }
      co_await Base::say_goodbye();
    }
    close();
  }

 private:
  using Base = HttpWire<Stream>;
  using Fill = typename Base::Fill;
  using Base::aborted_;
  using Base::changed;
  using Base::close;
  using Base::cut_off_;
  using Base::fill;
  using Base::inbox_;
  using Base::input_ended_;
  using Base::kForever;
  using Base::notify;
  using Base::on_grammar_worker;
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
    if (exchange_ && exchange_->too_slow()) {
      cut_off_ = Base::kSlowReader;
      on_abort();
    }
    notify();
  }

  /// The request that was read is over.
  void note_served() {
    if (!served_) return;
    const auto level = served_->looks_on() ? spdlog::level::debug : spdlog::level::info;
    if (!logger().should_log(level)) return;
    served_->cut_off = cut_off_;
    if (const auto line = server_.log.line_of(*served_, now())) logger().log(level, "{}", *line);
  }

  // --- Answers --------------------------------------------------------------------------------

  /// As the client reads errors, with the id that the answer has.
  HttpReply refuse(const ApiError& error) const {
    if (!served_) return error_reply(error);
    const auto id = std::ranges::find(fields_, "X-Request-Id", &HttpFields::value_type::first);
    return error_reply(error, served_->head.path,
                       id == fields_.end() ? std::string_view() : std::string_view(id->second));
  }

  void begin_answer(HttpReply& reply) {
    server_.metrics.on_http_response(reply.status);
    if (served_) served_->status = reply.status;
    reply.headers.insert(reply.headers.end(), fields_.begin(), fields_.end());
  }
  bool end_answer(bool sent) {
    if (served_) served_->complete = sent;
    return sent;
  }

  asio::awaitable<bool> respond(HttpReply reply) {
    begin_answer(reply);
    std::string text = response_head(reply, BodyEnd::kLength, keep_alive_);
    if (!head_only_) text += reply.body;
    std::string().swap(reply.body);
    const bool sent = co_await send_head(text);
    co_return end_answer(sent) && keep_alive_;
  }

  /// One that may be written in pieces: the next when the client has taken one, so that a large one
  /// is not held twice. Newcomers feel what is held.
  asio::awaitable<bool> respond_in_pieces(HttpReply reply) {
    const auto write_piece = std::exchange(reply.write_piece, nullptr);
    bool last = false;
    const auto write = [&] { last = write_piece(reply.body); };
    co_await on_worker(0, write);
    if (last) {
      RoomShare share(server_.answers);
      share.add(reply.body.size());
      const bool on = co_await respond(std::move(reply));
      co_return on;
    }
    std::string piece = std::exchange(reply.body, {});
    std::string out = open_head(std::move(reply));
    for (;;) {
      append_body(out, std::exchange(piece, {}), last);
      RoomShare share(server_.answers);
      share.add(out.size());
      const bool sent = co_await send_head(out);
      if (!sent) co_return false;
      if (last) co_return end_answer(true) && keep_alive_ && !version_1_0_;
      std::string().swap(out);
      const auto write_next = [&] { last = write_piece(piece); };
      co_await on_worker(0, write_next);
    }
  }

  /// Of an answer without a length.
  std::string open_head(HttpReply reply) {
    begin_answer(reply);
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
    if (error.code == kBadHttp) server_.metrics.on_garbage_connection();
    keep_alive_ = false;
    HttpReply reply = refuse(error);
    co_await respond(std::move(reply));
    co_await Base::linger();
    co_return false;
  }

  // --- A request ------------------------------------------------------------------------------

  /// One request and its answer; whether the connection goes on.
  asio::awaitable<bool> serve_one() {
    const TimePoint idle_until = now() + server_.options.deadlines.idle;
    bool skipped = false;
    if (inbox_.size() == 0) inbox_.shrink_to_fit();  // Thousands may wait idly.
    while (!begun(skipped)) {
      if (server_.stopping || input_ended_) co_return false;
      Base::start_fill();
      const bool in_time = co_await changed(idle_until);
      if (!in_time) co_return false;
    }
    const TimePoint began = now();
    RequestParser parser(server_.options);
    keep_alive_ = head_only_ = false;
    fields_.clear();
    const Read head_read = co_await read_until(parser, server_.options.deadlines.header);
    if (head_read.gone) co_return false;
    if (head_read.error) {
      const bool on = co_await turn_away(*head_read.error);
      co_return on;
    }
    version_1_0_ = parser.version_1_0();
    HttpHead head;
    if (const std::string fault = parser.read_head(head); !fault.empty()) {
      ApiError error = bad_http_error(fault);
      const bool on = co_await turn_away(std::move(error));
      co_return on;
    }
    served_.emplace(ServedRequest{.head = head, .began = began});
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
      HttpReply reply = refuse(*refusal);
      const bool on = co_await respond(std::move(reply));
      co_return on;
    }
    served_->route = route;
    const bool on = co_await serve_admitted(parser, head, route);
    co_return on;
  }

  asio::awaitable<bool> serve_admitted(RequestParser& parser, const HttpHead& head, Route route) {
    IncomingBody body(server_);
    if (!parser.is_done()) {
      if (parser.waits_to_continue()) {
        const bool sent = co_await send("HTTP/1.1 100 Continue\r\n\r\n");
        if (!sent) co_return false;
      }
      const Read body_read = co_await read_until(parser, server_.options.deadlines.body, &body);
      if (body_read.gone) co_return false;
      if (body_read.error) {
        const bool on = co_await turn_away(*body_read.error);
        co_return on;
      }
    }
    body.text = parser.take_body();
    if (Api::generates(route) || Api::finds(route)) {
      const bool on = co_await generate(route, head, body);
      co_return on;
    }
    const bool on = co_await look_up(route, head, body);
    co_return on;
  }

  /// Answers what needs no generation.
  asio::awaitable<bool> look_up(Route route, const HttpHead& head, IncomingBody& body) {
    HttpReply reply;
    if (route == Route::kHealth) {  // Probes must not wait for the workers.
      reply = server_.api.reply(route, head, "");
    } else {
      const auto work = [&] { reply = server_.api.reply(route, head, body.text); };
      co_await on_worker(body.text.size(), work);
    }
    body.let_go();
    if (reply.write_piece) {
      const bool on = co_await respond_in_pieces(std::move(reply));
      co_return on;
    }
    RoomShare share(server_.views);
    if (reply.body.size() > limits::kHttpSmallViewBytesMax)
      if (const auto error = share.take(reply.body.size())) reply = refuse(*error);
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

  /// Feeds the parser until the header is there or, with `body`, all of the request, whose body is
  /// counted there as it comes.
  asio::awaitable<Read> read_until(RequestParser& parser, std::chrono::milliseconds within,
                                   IncomingBody* body = nullptr) {
    const TimePoint deadline = now() + within;
    bool starved = inbox_.size() == 0;
    for (;;) {
      if (body == nullptr ? parser.header_is_done() : parser.is_done()) co_return Read{};
      if (starved) {
        const Fill filled = co_await fill(deadline);
        if (filled == Fill::kGone) co_return Read{.gone = true};
        if (filled == Fill::kLate) co_return Read{.error = late_request_error()};
      }
      if (auto error = parser.take(inbox_, starved)) co_return Read{.error = std::move(error)};
      if (body != nullptr && !body->grow_to(parser.body_bytes())) {
        co_return Read{.error = to_api_error(unavailable(
                           "The server is receiving too much at once; try again in a moment."))};
      }
    }
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
      session.exchange_->describe(*session.served_);
      session.exchange_->cancel();
      session.exchange_.reset();
    }
  };

  /// Whether a request has a grammar written, which has its own turns, and whose it is. Its body is
  /// read once more in its turn: what was read of it is many times as large, and would wait there.
  /// One that turns out to be large has its turn among those that do.
  struct GrammarTurn {
    bool large = false;
    bool wanted = false;
    Asker asker = {};
  };

  std::optional<ApiError> submit(Route route, const HttpHead& head, std::string& body,
                                 GrammarTurn& turn) {
    if (turn.wanted && exchange_->is_closed())
      return to_api_error(cancelled("The client closed the connection."));
    std::optional<ApiError> error;
    if (!turn.wanted) {
      turn.asker = server_.api.asker(route, head, body);
      if (exchange_->ask_again(turn.asker, error)) return error;
    }
    ApiRequest request;
    const auto wrong = server_.api.parse(route, turn.asker, body, request, turn.wanted);
    if (!wrong && request.wants_grammar && !turn.wanted) {
      turn.wanted = true;
      return std::nullopt;
    }
    if (!wrong && turn.wanted && !turn.large &&
        request.prompts.front().grammar.size() > limits::kSmallGrammarBytesMax) {
      turn.large = true;
      return std::nullopt;
    }
    std::string().swap(body);
    if (wrong) return wrong;
    error = exchange_->submit(std::move(request), turn.asker);
    return error ? std::optional(Api::in_words_of(route, std::move(*error))) : std::nullopt;
  }

  std::optional<ApiError> attach(Route route, const HttpHead& head) {
    FoundRequest found;
    if (auto error = server_.api.find(head, found)) return error;
    std::optional<TokenCounts> from;
    if (auto error = read_place({route, head.path, head.query, head.last_event_id}, found, from))
      return error;
    return exchange_->attach(std::move(found), std::move(from));
  }

  /// Answers with what is generated, or was for an earlier request.
  asio::awaitable<bool> generate(Route route, const HttpHead& head, IncomingBody& body) {
    const ExchangeScope scope(*this);
    Base::start_fill();
    std::optional<ApiError> error = {};
    const bool accepts = Api::generates(route);
    GrammarTurn turn{.large = body.text.size() > limits::kSmallGrammarBytesMax};
    const auto open = [&] {
      error = accepts ? submit(route, head, body.text, turn) : attach(route, head);
    };
    co_await on_worker(body.text.size(), open);
    if (turn.wanted) {
      const bool large = turn.large;
      co_await on_grammar_worker(turn.asker.owner, large, open);
      if (turn.large != large) co_await on_grammar_worker(turn.asker.owner, true, open);
    }
    body.let_go();
    if (peer_gone_ || aborted_) co_return false;
    if (accepts && !error && !Api::names_itself(head))
      Api::add_request_id(head, exchange_->id(), fields_);
    if (error) {
      HttpReply reply = refuse(*error);
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
    if (news.error) {
      HttpReply reply = refuse(*news.error);
      const bool on = co_await respond(std::move(reply));
      co_return on;
    }
    HttpReply reply;
    reply.write_piece = [this](std::string& out) { return exchange_->write_piece(out); };
    const bool on = co_await respond_in_pieces(std::move(reply));
    co_return on;
  }

  /// The head goes out with the first news, so that an error before it has its own status code; or
  /// when there was none for a while. From then on a comment says from time to time that it waits.
  /// `fresh`: an error also has its status if it comes with news; of an earlier request, what it
  /// has comes first.
  asio::awaitable<bool> stream_answer(bool fresh) {
    bool begun = false;
    const GatewayOptions::Silence& silence = server_.options.silence;
    for (TimePoint speak_at = now() + silence.head_after;;) {
      Exchange::News news = exchange_->take();
      if (peer_gone_ || aborted_) co_return false;
      if (news.error && !begun && (fresh || news.bytes.empty())) {
        HttpReply reply = refuse(*news.error);
        const bool on = co_await respond(std::move(reply));
        co_return on;
      }
      if (news.error) {
        news.bytes += exchange_->stream_error(*news.error);
        served_->late_error = news.error->status;
      }
      const bool last = news.done || news.error.has_value();
      if (news.bytes.empty() && !last) {
        if (!begun && Base::wants_head_early()) {
          const bool there = co_await Base::begin_head_early();
          if (!there) co_return false;
          continue;
        }
        const bool woken = co_await changed(speak_at);
        if (woken) continue;
        if (begun) {
          news.bytes = kWaitingComment;
        } else {
          bool kept = false;
          const auto ask = [&] { kept = exchange_->kept(); };
          co_await on_worker(0, ask);
          if (!kept) {
            speak_at = now() + silence.head_after;
            continue;
          }
        }
      }
      std::string out;
      if (!begun) out = open_head(stream_reply());
      append_body(out, news.bytes, last);
      begun = true;
      const bool sent = co_await send_head(out);
      if (!sent) co_return false;
      if (last) co_return end_answer(true) && keep_alive_ && !version_1_0_;
      speak_at = now() + silence.comment_every;
    }
  }

  std::shared_ptr<Exchange> exchange_;
  std::optional<ServedRequest> served_;  // None: no head has been read.
  HttpFields fields_;  // Of every answer to the request.
  bool keep_alive_ = false;
  bool head_only_ = false;
  bool version_1_0_ = false;
};

}  // namespace troupe
