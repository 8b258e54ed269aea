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
#include <exception>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

#include "actors/gateway/http_text.h"
#include "runtime/clock.h"
#include "runtime/limits.h"

namespace troupe {

/// The bytes of one connection, and its waits. What arrives is in inbox_. A single read is always
/// under way while a request is computed: its end is how a client's leaving shows.
///
/// A client that sends no more may still want its answer (`nc -N`). One that is gone answers what
/// we send with a reset: so the beginning of the answer is sent at once, and whoever is still there
/// gets the rest. Over TLS an end is an end.
///
/// GCC 12 miscompiles temporaries in co_await expressions: completion tokens and buffers are named.
template <class Stream>
class HttpWire : public Connection, public std::enable_shared_from_this<HttpWire<Stream>> {
 protected:
  /// `stream`: what the stream is made of.
  template <class... Args>
  explicit HttpWire(Server& server, Args&&... stream)
      : server_(server),
        stream_(std::forward<Args>(stream)...),
        changed_(server.io),
        write_guard_(server.io),
        chunk_(new char[kChunkBytes]) {
    server_.connections.insert(this);
    server_.metrics.set_http_connections(server_.connections.size());
  }
  ~HttpWire() override {
    server_.connections.erase(this);
    server_.metrics.set_http_connections(server_.connections.size());
  }

  /// The client is gone: cancel what runs for it.
  virtual void on_gone() = 0;
  /// Whether a request is being computed.
  virtual bool computing() const = 0;

  static constexpr bool kTls = !std::is_same_v<Stream, tcp::socket>;
  static constexpr TimePoint kForever = TimePoint::max();

  // --- Its beginning and its end --------------------------------------------------------------

  asio::awaitable<bool> handshake() {
    guard(limits::kHandshakeDeadline);
    error_code ec;
    if constexpr (kTls) {
      auto token = asio::redirect_error(asio::use_awaitable, ec);
      co_await stream_.async_handshake(asio::ssl::stream_base::server, token);
    }
    write_guard_.cancel();
    if (ec) server_.metrics.on_garbage_connection();
    co_return !ec;
  }

  /// TLS has an end of its own, without which an answer might have been cut off.
  asio::awaitable<void> say_goodbye() {
    if (!kTls || peer_gone_ || aborted_ || std::exchange(goodbye_said_, true)) co_return;
    guard(limits::kHttpLingerDeadline);
    error_code ec;
    if constexpr (kTls) {
      auto token = asio::redirect_error(asio::use_awaitable, ec);
      co_await stream_.async_shutdown(token);
    }
    write_guard_.cancel();
  }

  /// Says that nothing follows, and waits a while for the client to take note: bytes that nobody
  /// read would turn the end into a reset, and the last answer might be lost to it.
  asio::awaitable<void> linger() {
    co_await say_goodbye();
    error_code ec;
    socket().shutdown(tcp::socket::shutdown_send, ec);
    guard(limits::kHttpLingerDeadline);
    char ignored[4096];
    while (!ec) {
      auto token = asio::redirect_error(asio::use_awaitable, ec);
      const auto buffer = asio::buffer(ignored);
      co_await socket().async_read_some(buffer, token);
    }
    write_guard_.cancel();
  }

  /// The other end hears of it even if somebody else holds a copy of the socket.
  void close() {
    error_code ignored;
    socket().shutdown(tcp::socket::shutdown_both, ignored);
    socket().close(ignored);
  }

  // --- Waiting --------------------------------------------------------------------------------

  void notify() { changed_.cancel(); }

  /// Waits for notify(), or the deadline: then false.
  asio::awaitable<bool> changed(TimePoint deadline) {
    error_code ec;
    changed_.expires_at(deadline);
    auto token = asio::redirect_error(asio::use_awaitable, ec);
    co_await changed_.async_wait(token);
    co_return ec == asio::error::operation_aborted;
  }

  /// Runs `work` on a worker thread, for a request with so large a body.
  template <class Work>
  asio::awaitable<void> on_worker(std::size_t body_bytes, Work work) {
    asio::thread_pool& pool =
        body_bytes > limits::kHttpSmallBodyBytesMax ? server_.big_worker : server_.workers;
    const auto post = [&pool](std::function<void()> job) { asio::post(pool, std::move(job)); };
    co_await elsewhere(post, std::move(work));
  }

  /// Runs `work`, which writes a grammar, when it is the turn of the asker.
  template <class Work>
  asio::awaitable<void> on_grammar_worker(std::uint64_t owner, bool large, Work work) {
    FairWorker& worker = large ? server_.big_grammar_worker : server_.grammar_worker;
    const auto post = [&worker, owner](std::function<void()> job) {
      worker.post(owner, std::move(job));
    };
    co_await elsewhere(post, std::move(work));
  }

  /// Runs `work` where `post` brings it.
  template <class Post, class Work>
  asio::awaitable<void> elsewhere(Post post, Work work) {
    bool done = false;
    std::exception_ptr failure;
    // The references live until `done` is set. `self` moves on, so that no session ends on a
    // worker.
    post([&, self = this->shared_from_this()]() mutable {
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

  // --- Reading --------------------------------------------------------------------------------

  /// Has one read under way; what it brings goes to inbox_.
  void start_fill() {
    if (filling_ || input_ended_) return;
    filling_ = true;
    stream_.async_read_some(asio::buffer(chunk_.get(), kChunkBytes),
                            [self = this->shared_from_this()](error_code ec, std::size_t bytes) {
                              self->on_filled(ec, bytes);
                            });
  }

  enum class Fill : unsigned char { kOk, kLate, kGone };
  /// Waits for more bytes than inbox_ has; kGone: none will come.
  asio::awaitable<Fill> fill(TimePoint deadline) {
    const std::size_t before = inbox_.size();
    start_fill();
    while (inbox_.size() == before) {
      if (input_ended_ || aborted_) co_return Fill::kGone;
      const bool in_time = co_await changed(deadline);
      if (!in_time) co_return Fill::kLate;
    }
    co_return Fill::kOk;
  }

  // --- Writing --------------------------------------------------------------------------------

  /// Sends it all; false if the client is gone or did not read in time.
  asio::awaitable<bool> send(std::string_view bytes) {
    while (!bytes.empty()) {
      const std::size_t size = std::min(bytes.size(), kWriteBytes);
      guard(server_.options.deadlines.write);
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

  /// Sends an answer's head, or what begins with it.
  asio::awaitable<bool> send_head(std::string_view head) {
    if (std::exchange(head_begun_, false)) head.remove_prefix(kHeadBegin.size());
    const bool sent = co_await send(head);
    co_return sent;
  }

  /// To a client that sends no more go the first bytes of its answer, to see whether it is there.
  bool wants_head_early() const { return input_ended_ && !head_begun_; }
  asio::awaitable<bool> begin_head_early() {
    head_begun_ = true;
    const bool sent = co_await send(kHeadBegin);
    co_return sent;
  }

  tcp::socket& socket() {
    if constexpr (kTls) {
      return stream_.next_layer();
    } else {
      return stream_;
    }
  }

  Server& server_;
  boost::beast::flat_buffer inbox_;  // Received and not yet parsed.
  bool input_ended_ = false;         // No more bytes will come.
  bool peer_gone_ = false;           // And nobody is there to read.
  bool aborted_ = false;
  const char* cut_off_ = nullptr;  // Why, if it is we who do.
  static constexpr const char* kSlowReader = "cut off, for its client did not read in time,";

 private:
  static constexpr std::size_t kChunkBytes = 16u << 10;
  static constexpr std::size_t kPipelinedBytesMax = 64u << 10;
  static constexpr std::size_t kWriteBytes = 256u << 10;

  /// Closes the connection of a client that does not take its part in time.
  void guard(Duration within) {
    write_guard_.expires_after(within);
    write_guard_.async_wait([self = this->shared_from_this()](error_code ec) {
      if (ec) return;
      self->cut_off_ = kSlowReader;
      self->close();
    });
  }

  void on_filled(error_code ec, std::size_t bytes) {
    filling_ = false;
    const auto room = inbox_.prepare(bytes);
    asio::buffer_copy(room, asio::buffer(chunk_.get(), bytes));
    inbox_.commit(bytes);
    if (ec) {
      input_ended_ = true;
      if (!kTls && ec == asio::error::eof)
        watch_for_reset();
      else
        gone();
    } else if (computing() && inbox_.size() < kPipelinedBytesMax) {
      start_fill();
    }
    notify();
  }

  void watch_for_reset() {
    socket().async_wait(tcp::socket::wait_error,
                        [self = this->shared_from_this()](error_code) { self->gone(); });
  }

  void gone() {
    peer_gone_ = true;
    on_gone();
    notify();
  }

  Stream stream_;
  asio::steady_timer changed_;      // Never for its time only: cancelled when something changed.
  asio::steady_timer write_guard_;  // Closes the connection of a client that does not read.
  const std::unique_ptr<char[]> chunk_;
  bool filling_ = false;
  bool goodbye_said_ = false;
  bool head_begun_ = false;  // begin_head_early() has sent kHeadBegin.
};

}  // namespace troupe
