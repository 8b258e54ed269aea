#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "actors/control/credentials.h"
#include "actors/control/session_lane.h"
#include "runtime/clock.h"
#include "runtime/ids.h"
#include "runtime/limits.h"
#include "runtime/result.h"
#include "transport/message.h"

namespace caf {
class actor_system;
}

/// The control lane: encoded envelopes over TLS 1.3 on TCP, inside CAF's multiplexer. Both sides
/// show a certificate of the cluster's CA. See README.md of this folder for the format and the
/// reasons.
namespace troupe {

/// A session of one ControlServer or one ControlClient; numbers are not used again in its life.
using SessionId = StrongId<struct SessionTag, std::uint32_t>;

/// Why a session ended, or never began.
enum class SessionEndKind : std::uint8_t {
  kClosed,       ///< this side's close(), or its destruction
  kPeerClosed,   ///< the peer closed in order, or its process died
  kUnreachable,  ///< nobody could be connected to: no such name, no route, nobody listens
  kForeign,      ///< the certificates do not belong together
  kDeadline,     ///< the connect deadline passed
  kStuck,        ///< the peer did not take what was sent: limits::kControlUnsentBytesMax
  kGarbage,      ///< the peer broke the format
};
std::string_view to_string(SessionEndKind kind);

struct SessionEnd {
  SessionEndKind kind = SessionEndKind::kClosed;
  std::string text;  ///< one sentence for people
};

/// "host:port" of both ends of a session, as the socket sees them, and the name of the certificate
/// that the peer has shown.
struct SessionEnds {
  std::string peer;
  std::string own = {};
  std::string certificate = {};
};

/// What a lane tells its owner, always on the multiplexer's thread, in order of each session:
/// `on_session_up`, then `on_message`s, then `on_session_down` once; or only `on_session_down` when
/// a client's connect failed. The calls must not block; they may call `send` and `close`.
class ControlEvents {
 public:
  virtual ~ControlEvents() = default;
  /// At the server: the peer's certificate is good. At the client: the server's first message is
  /// here, it follows at once.
  virtual void on_session_up(SessionId session, SessionEnds ends) = 0;
  virtual void on_message(SessionId session, Envelope envelope) = 0;
  virtual void on_session_down(SessionId session, SessionEnd end) = 0;
};

/// Totals since the lane was made.
struct ControlStats {
  std::uint64_t sessions = 0;           ///< up now
  std::uint64_t strangers_refused = 0;  ///< connections that never authenticated
  std::uint64_t garbage = 0;            ///< messages of authenticated peers that broke the format
  std::uint64_t messages_sent = 0;
  std::uint64_t messages_received = 0;
  std::uint64_t bytes_sent = 0;  ///< of frames, before TLS
  std::uint64_t bytes_received = 0;
};

/// Somebody who asks for a certificate; the text is one of enrolment_text.h.
struct DeskVisit {
  std::string peer;  ///< "host:port"
  std::string request;
  /// Of the certificate of the cluster that it has shown, and wants the next of; empty: none.
  std::string certificate = {};
};
/// Answers once, by calling `reply` on any thread. Must not block.
using EnrolmentDoor =
    std::function<void(DeskVisit visit, std::function<void(std::string text)> reply)>;

struct ControlOptions {
  std::size_t unsent_bytes_max = limits::kControlUnsentBytesMax;  ///< per session
  Duration handshake_deadline = limits::kHandshakeDeadline;
  std::size_t strangers_max = limits::kUnauthenticatedConnectionsMax;
  EnrolmentDoor enrol{};  ///< the server's; none: everyone must have a certificate
};

namespace control {
class Lane;
}

/// The head's side. All methods are thread-safe and none blocks, except `listen` and destruction.
class ControlServer final : public SessionLane {
 public:
  /// Port 0 takes a free one. `events` must outlive the server.
  /// Errors: kInvalidArgument (no such address on this machine), kUnavailable (port in use).
  static Result<std::unique_ptr<ControlServer>> listen(caf::actor_system& system,
                                                       const HostPort& address,
                                                       const Credentials& credentials,
                                                       ControlEvents& events,
                                                       const ControlOptions& options = {});
  /// Closes the listener and every session; no event comes after it. Not to be called from an
  /// event.
  ~ControlServer() override;

  std::uint16_t port() const { return port_; }
  /// Errors: kUnavailable (no such session), kResourceExhausted (the session was cut as stuck, or
  /// the message is longer than a frame may be), kInvalidArgument (not encodable), kRefused (the
  /// other end speaks no protocol that has it).
  Status send(SessionId session, const Envelope& envelope);
  /// Closes after what was sent has left, or after `deadline`; nothing is received any more.
  /// `on_session_down` follows.
  void close(SessionId session, Duration deadline = std::chrono::seconds(1));
  ControlStats stats() const;
  /// For sessions that begin from now on; those that are up go on, unless their certificates are
  /// revoked. As listen()'s errors.
  Status use(const Credentials& credentials);

  // SessionLane
  Status send(std::uint32_t session, const Envelope& envelope) override;
  void close(std::uint32_t session, const std::string& reason) override;

 private:
  ControlServer(std::unique_ptr<control::Lane> lane, std::uint16_t port);
  std::unique_ptr<control::Lane> lane_;
  std::uint16_t port_ = 0;
};

/// The side of workers and client programs. Thread-safety as the server's.
class ControlClient {
 public:
  /// `events` must outlive the client. Errors: kInvalidArgument (the credentials are no PEM).
  static Result<std::unique_ptr<ControlClient>> start(caf::actor_system& system,
                                                      const Credentials& credentials,
                                                      ControlEvents& events,
                                                      const ControlOptions& options = {});
  ~ControlClient();

  /// Begins a session. It is up when the server's first message is here; if that takes longer than
  /// `deadline`, `on_session_down` comes instead.
  SessionId connect(const HostPort& address, Duration deadline);
  Status send(SessionId session, const Envelope& envelope);
  void close(SessionId session, Duration deadline = std::chrono::seconds(1));
  ControlStats stats() const;
  /// For sessions that begin from now on. Errors as start()'s.
  Status use(const Credentials& credentials);

 private:
  struct Impl;
  explicit ControlClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe
