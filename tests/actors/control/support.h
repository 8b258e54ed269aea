#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "actors/control/caf_system.h"
#include "actors/control/control_lane.h"
#include "actors/control/tls_session.h"

namespace troupe {

using namespace std::chrono_literals;

/// The certificates of one cluster for the whole program, and of another one.
const ClusterCredentials& own_credentials();
const ClusterCredentials& foreign_credentials();

/// Remembers what a lane tells; answers pings if asked to.
class Recorder : public ControlEvents {
 public:
  struct Down {
    SessionId session;
    SessionEnd end;
    TimePoint when;
  };

  void on_session_up(SessionId session, SessionEnds ends) override;
  void on_message(SessionId session, Envelope envelope) override;
  void on_session_down(SessionId session, SessionEnd end) override;

  /// What happens with every session and message, on the multiplexer's thread.
  std::function<void(SessionId)> when_up;
  std::function<void(SessionId, const Envelope&)> when_message;

  /// Waits until that many were seen in all; false after 10 s.
  bool wait_up(std::size_t count);
  bool wait_down(std::size_t count);
  bool wait_messages(std::size_t count);

  std::vector<SessionId> ups();
  std::vector<Down> downs();
  std::vector<MessagePtr> messages();

 private:
  template <class Condition>
  bool wait(Condition condition);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<SessionId> ups_;
  std::vector<Down> downs_;
  std::vector<MessagePtr> messages_;
};

inline Envelope envelope_of(Message message) { return {{}, {}, message_of(std::move(message))}; }
inline Envelope greeting() { return envelope_of(Greeting{kProtocol, "c", "v", "/m", "h", {}}); }

/// A head that greets whoever comes and sends Renew back as Renewed.
struct Head {
  explicit Head(CafSystem& caf, const ControlOptions& options = {},
                const Credentials& credentials = own_credentials().head);
  Recorder events;
  std::unique_ptr<ControlServer> server;

  HostPort address() const { return {"127.0.0.1", server->port()}; }
};

/// A worker with one session.
struct Worker {
  explicit Worker(CafSystem& caf, const Credentials& credentials = own_credentials().worker);
  Recorder events;
  std::unique_ptr<ControlClient> client;
};

/// A plain blocking socket to a port of this machine; closed at the end.
class RawSocket {
 public:
  explicit RawSocket(std::uint16_t port);
  ~RawSocket();
  RawSocket(RawSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  RawSocket(const RawSocket&) = delete;

  bool send(std::span<const char> bytes);
  /// What comes within the time; empty at the end of the stream.
  std::vector<char> receive(Duration wait);
  /// Whether the peer closes within the time; what it says is dropped.
  bool closed_within(Duration wait);
  int fd() const { return fd_; }

 private:
  int fd_;
};

/// A peer with a good certificate that says what no client would.
class RawPeer {
 public:
  RawPeer(std::uint16_t port, const Credentials& credentials);
  bool send(std::span<const std::byte> plain);
  bool closed_within(Duration wait) { return socket_.closed_within(wait); }
  bool open() const { return tls_.state() == control::TlsSession::State::kOpen; }

 private:
  RawSocket socket_;
  control::TlsSession tls_;
};

std::vector<std::byte> frame_of(const Envelope& envelope);

}  // namespace troupe
