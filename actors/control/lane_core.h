#pragma once

#include <atomic>
#include <caf/io/broker.hpp>
#include <caf/io/middleman.hpp>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actors/control/frame_reader.h"
#include "actors/control/lane.h"
#include "runtime/line_limit.h"

namespace troupe::control {

using Handle = caf::io::connection_handle;
using Tick = caf::atom_constant<caf::atom("tick")>;
using Quit = caf::atom_constant<caf::atom("quit")>;

/// Unsent bytes of one session that is up; guarded by LaneCore::mutex_.
struct Flow {
  std::size_t queued = 0;  ///< frames in the outbox
  std::size_t wire = 0;    ///< TLS records in the socket's buffers
  /// That both ends speak, once the other has said what it does.
  std::uint32_t protocol = kProtocol.oldest;
};

/// One socket.
///
///     kHandshake --> kUp --> kClosing (our close: flush, FIN, wait for the peer's)
///         |  (client: kQuiet in between, until the server's first message)
///         +--> kLingering (its owner knows that it ended; the alert still has to arrive)
struct Connection {
  enum class Phase : std::uint8_t { kHandshake, kQuiet, kUp, kClosing, kLingering, kDead };

  Connection(Handle h, std::shared_ptr<TlsContext> context)
      : handle(h), tls(std::move(context)), frames(limits::kControlFrameBytesMax) {}

  Handle handle;
  TlsSession tls;
  FrameReader frames;
  Phase phase = Phase::kHandshake;
  SessionId session;  ///< 0: none yet
  std::string peer;
  std::size_t raw_bytes = 0;   ///< received before the peer authenticated
  std::size_t unsent = 0;      ///< in the socket's buffers
  bool has_asked = false;      ///< for a certificate, which is done once
  std::uint64_t stranger = 0;  ///< its number among the unauthenticated; 0: none
  TimePoint deadline{};        ///< armed if not zero
};

/// What Lane does, on two sides: the upper part from any thread, the rest on the multiplexer's
/// only.
class LaneCore : public std::enable_shared_from_this<LaneCore> {
 public:
  LaneCore(caf::actor_system& system, std::shared_ptr<TlsContext> context, ControlEvents& events,
           const ControlOptions& options);

  void start();  ///< spawns the broker and waits for it
  void stop();
  /// Runs `task` on the multiplexer's thread, after what was posted before.
  void post(std::function<void()> task);
  SessionId next_session() { return SessionId{++last_session_}; }
  Status send(SessionId session, const Envelope& envelope);
  ControlStats stats() const;

  // On the multiplexer's thread.
  caf::behavior behavior(caf::io::broker* self);
  void listen(int fd);
  void announce(SessionId session) { dialing_.insert(session); }
  void adopt(SessionId session, int fd, std::string peer, TimePoint deadline);
  void give_up(SessionId session, SessionEnd end);
  void close(SessionId session, TimePoint deadline);
  /// For connections that begin; those that are up and whose certificates it revokes end.
  void use(std::shared_ptr<TlsContext> context);

 private:
  using Phase = Connection::Phase;

  bool server() const { return side_ == TlsSide::kServer; }
  Connection* find(Handle handle);
  Connection* find(SessionId session);

  /// Counts a frame against its session's bound; forgets the session if it is stuck. kRefused: the
  /// other end speaks no protocol that has such a message.
  Status take_room(SessionId session, std::size_t bytes, std::uint32_t protocol);
  void learn_protocol(SessionId session, const Message& message);

  void run_outbox();
  void on_accepted(Handle handle);
  void on_data(Connection& connection, std::span<const char> bytes);
  void on_written(Connection& connection, std::size_t remaining);
  void on_closed(Handle handle);
  void on_tick();
  void on_quit();

  void add_stranger(Connection& connection);
  void drop_stranger(Connection& connection);
  void authenticated(Connection& connection);
  /// The exchange that gives a stranger a certificate (lane_enrolment.cpp).
  void take_enrolment(Connection& connection);
  void answer_enrolment(std::uint64_t stranger, const std::string& reply);
  void take_frames(Connection& connection, std::span<const std::byte> plain);
  void come_up(Connection& connection);
  void write_frame(SessionId session, const std::vector<std::byte>& bytes);
  void flush(Connection& connection);
  void fail_handshake(Connection& connection);
  void cut_stuck(SessionId session);
  void broken(Connection& connection, const std::string& what);
  /// Tells the owner and forgets the session; the socket lingers if something has to reach the
  /// peer.
  void end(Connection& connection, SessionEnd reason, bool may_linger);
  /// Sends what is to be sent, and says that nothing follows.
  void linger(Connection& connection);
  void hard_close(Connection& connection);
  void half_close_when_flushed(Connection& connection);
  void arm(Connection& connection, TimePoint deadline);
  void disarm(Connection& connection);
  void schedule_tick();

  caf::actor_system& system_;
  const TlsSide side_;
  ControlEvents& events_;
  const ControlOptions options_;

  mutable std::mutex mutex_;
  std::vector<std::function<void()>> outbox_;  ///< guarded by mutex_
  bool woken_ = false;                         ///< guarded by mutex_: a run_outbox is on its way
  bool stopped_ = false;                       ///< guarded by mutex_
  std::unordered_map<SessionId, Flow> flows_;  ///< guarded by mutex_: sessions that are up
  ControlStats stats_;                         ///< guarded by mutex_
  std::atomic<std::uint32_t> last_session_{0};
  std::promise<void> ended_;

  // On the multiplexer's thread.
  caf::io::broker* self_ = nullptr;
  caf::actor broker_;
  std::shared_ptr<TlsContext> context_;  ///< of connections that begin
  bool running_ = false;
  std::map<Handle, std::unique_ptr<Connection>> connections_;
  std::unordered_map<SessionId, Connection*> sessions_;
  std::set<SessionId> dialing_;
  std::map<std::uint64_t, Connection*> strangers_;  ///< the oldest first
  LineLimit stranger_lines_;
  std::uint64_t last_stranger_ = 0;
  std::set<std::pair<TimePoint, Handle>> deadlines_;
  TimePoint next_tick_ = TimePoint::max();
  std::vector<std::byte> plain_;  ///< scratch
};

}  // namespace troupe::control
