#pragma once

#include <array>
#include <atomic>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/clock.h"
#include "transport/fabric/provider.h"
#include "transport/fabric/wire.h"

namespace troupe::transport {

/// Owns a descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// The fabric's public door: a plain TCP listener whose callers must present a pass before the
/// provider hears of them. Never blocks: a silent caller costs a descriptor until its deadline, or
/// until a newer caller needs it. Used by one thread, which watches the descriptors with `epoll`.
class Gate {
 public:
  struct Caller {
    Descriptor socket;
    TimePoint deadline;
    std::array<std::byte, kGateHelloBytes> bytes{};
    std::size_t filled = 0;
  };

  /// Takes a free port and keeps it, open or closed: of that address, or else of all.
  static Result<std::unique_ptr<Gate>> make(const std::optional<SocketAddress>& at, int epoll);

  /// With the port; "any" if it is of all.
  const SocketAddress& address() const { return address_; }
  std::uint16_t port() const { return address_.port(); }
  int listener() const { return listener_.get(); }
  bool owns(int fd) const;
  /// Listens there, at its port, and nowhere else.
  Status open(SocketAddress at);
  void close();

  /// Accepts who is waiting.
  void accept_callers(TimePoint now);
  /// Reads from one caller. A hello once it is complete and well-formed; the caller waits for
  /// `answer`. Anything else ends the connection.
  std::optional<GateHello> read(int fd);
  /// This machine's address that a caller came to; port 0.
  std::optional<SocketAddress> came_to(int fd) const;
  void answer(int fd, const GateReply& reply);
  void hang_up_late(TimePoint now);
  std::optional<TimePoint> next_deadline() const;
  /// From any thread.
  std::uint64_t strangers() const { return strangers_.load(std::memory_order_relaxed); }

 private:
  Gate() = default;
  std::list<Caller>::iterator find(int fd);

  int epoll_ = -1;
  SocketAddress address_;
  Descriptor reservation_;  ///< bound and never listening: keeps the port while the gate is closed
  Descriptor listener_;
  SocketAddress listens_at_;   ///< if there is one
  std::list<Caller> callers_;  ///< oldest first
  std::atomic<std::uint64_t> strangers_{0};
};

/// The other side: asks a peer's gate where its provider listens.
class GateCall {
 public:
  /// Starts to connect, from that address if there is one; the descriptor becomes writable, then
  /// readable. kInvalidArgument: it cannot be gone there from this end.
  static Result<std::unique_ptr<GateCall>> start(const std::optional<SocketAddress>& from,
                                                 const SocketAddress& to, const GateHello& hello,
                                                 int epoll);
  int fd() const { return socket_.get(); }
  bool connected() const { return sent_; }
  /// Goes on after an event; the answer once it is there.
  Result<std::optional<GateReply>> go_on();

 private:
  GateCall() = default;

  Descriptor socket_;
  int epoll_ = -1;
  std::array<std::byte, kGateHelloBytes> hello_{};
  std::array<std::byte, kGateReplyBytes> reply_{};
  std::size_t filled_ = 0;
  bool sent_ = false;
};

}  // namespace troupe::transport
