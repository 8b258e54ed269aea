#include "actors/control/lane_core.h"

#include <sys/socket.h>
#include <unistd.h>

#include <caf/send.hpp>

#include "actors/control/dialer.h"
#include "runtime/log.h"
#include "transport/codec.h"

namespace troupe::control {
namespace {

constexpr std::size_t kReadBytes = 64u << 10;
constexpr std::size_t kStrangerReadBytes = 4u << 10;
/// How long an alert or a last message may take to reach a peer that is being closed.
constexpr auto kLinger = std::chrono::seconds(1);
/// A peer with a certificate is trusted, but not to the last descriptor.
constexpr std::size_t kSessionsMax = 2 * limits::kNodesMax;
/// A buffer that one large message has grown is given back.
constexpr std::size_t kIdleBufferBytes = 1u << 20;

/// CAF's handles of TCP connections are their descriptors.
int descriptor(Handle handle) { return static_cast<int>(handle.id()); }

}  // namespace

LaneCore::LaneCore(caf::actor_system& system, std::shared_ptr<TlsContext> context,
                   ControlEvents& events, const ControlOptions& options)
    : system_(system), side_(context->side()), events_(events), options_(options),
      context_(std::move(context)) {}

// --- Any thread ----------------------------------------------------------------------------------

void LaneCore::start() {
  std::promise<void> ready;
  // The core goes as an argument: without one CAF would dereference a null pointer to no arguments.
  broker_ = system_.middleman().spawn_broker(
      [&ready](caf::io::broker* self, const std::shared_ptr<LaneCore>& core) {
        auto behavior = core->behavior(self);
        ready.set_value();
        return behavior;
      },
      shared_from_this());
  ready.get_future().wait();
}

void LaneCore::stop() {
  // As a message: a broker ends only after one.
  post([this] { self_->send(self_, Quit::value); });
  ended_.get_future().wait();
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  outbox_.clear();
}

void LaneCore::post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    outbox_.push_back(std::move(task));
    if (std::exchange(woken_, true)) return;
  }
  system_.middleman().backend().post([core = shared_from_this()] { core->run_outbox(); });
}

Status LaneCore::send(SessionId session, const Envelope& envelope) {
  auto encoded = transport::encode(envelope);
  if (!encoded.ok()) return encoded.error();
  if (encoded->size() > limits::kControlFrameBytesMax)
    return resource_exhausted("A message of " + std::to_string(encoded->size()) +
                              " bytes is too long for the control lane.");
  const std::size_t size = encoded->size() + kFrameHeaderBytes;
  const Status taken = take_room(session, size, protocol_of(*envelope.message));
  if (taken.ok()) {
    auto bytes = std::make_shared<std::vector<std::byte>>(std::move(encoded).value());
    post([this, session, bytes] { write_frame(session, *bytes); });
  } else if (taken.error().code == ErrorCode::kResourceExhausted) {
    post([this, session] { cut_stuck(session); });
  }
  return taken;
}

Status LaneCore::take_room(SessionId session, std::size_t bytes, std::uint32_t protocol) {
  const std::lock_guard lock(mutex_);
  const auto flow = flows_.find(session);
  if (flow == flows_.end()) return unavailable("The control session is not up.");
  if (protocol > flow->second.protocol)
    return refused("The other end is of an older version of Troupe, which does not know this.");
  if (flow->second.queued + flow->second.wire + bytes > options_.unsent_bytes_max) {
    flows_.erase(flow);
    return resource_exhausted("The peer does not take what it is sent; its session is cut.");
  }
  flow->second.queued += bytes;
  ++stats_.messages_sent;
  stats_.bytes_sent += bytes;
  return {};
}

ControlStats LaneCore::stats() const {
  const std::lock_guard lock(mutex_);
  ControlStats stats = stats_;
  stats.sessions = flows_.size();
  return stats;
}

// --- The multiplexer's thread --------------------------------------------------------------------

caf::behavior LaneCore::behavior(caf::io::broker* self) {
  self_ = self;
  running_ = true;
  const auto core = shared_from_this();
  return {
      [core](const caf::io::new_connection_msg& message) { core->on_accepted(message.handle); },
      [core](const caf::io::new_data_msg& message) {
        if (Connection* connection = core->find(message.handle))
          core->on_data(*connection, message.buf);
      },
      [core](const caf::io::data_transferred_msg& message) {
        if (Connection* connection = core->find(message.handle))
          core->on_written(*connection, message.remaining);
      },
      [core](const caf::io::connection_closed_msg& message) { core->on_closed(message.handle); },
      [core](const caf::io::acceptor_closed_msg&) {
        if (core->running_) logger().error("The control lane's listener has failed.");
      },
      [core](Tick) { core->on_tick(); },
      [core](Quit) { core->on_quit(); },
  };
}

void LaneCore::run_outbox() {
  std::vector<std::function<void()>> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(outbox_);
    woken_ = false;
  }
  for (auto& task : tasks) task();
}

Connection* LaneCore::find(Handle handle) {
  const auto at = connections_.find(handle);
  return at == connections_.end() ? nullptr : at->second.get();
}

Connection* LaneCore::find(SessionId session) {
  const auto at = sessions_.find(session);
  return at == sessions_.end() ? nullptr : at->second;
}

void LaneCore::listen(int fd) {
  if (running_)
    self_->add_doorman(fd);
  else
    ::close(fd);
}

void LaneCore::on_accepted(Handle handle) {
  set_control_socket_options(descriptor(handle));
  auto& connection = connections_[handle];
  connection = std::make_unique<Connection>(handle, context_);
  connection->peer = peer_of(descriptor(handle));
  self_->ack_writes(handle, true);
  self_->configure_read(handle, caf::io::receive_policy::at_most(kStrangerReadBytes));
  // The oldest goes: silent ones pile up at that end, a member's handshake takes milliseconds.
  if (strangers_.size() >= options_.strangers_max) {
    const std::lock_guard lock(mutex_);
    ++stats_.strangers_refused;
  }
  while (strangers_.size() >= options_.strangers_max) hard_close(*strangers_.begin()->second);
  add_stranger(*connection);
  arm(*connection, now() + options_.handshake_deadline);
}

void LaneCore::adopt(SessionId session, int fd, std::string peer, TimePoint deadline) {
  if (!running_ || dialing_.erase(session) == 0) {
    ::close(fd);
    return;
  }
  const Handle handle = self_->add_scribe(fd);
  auto& connection = connections_[handle];
  connection = std::make_unique<Connection>(handle, context_);
  connection->session = session;
  connection->peer = std::move(peer);
  sessions_[session] = connection.get();
  self_->ack_writes(handle, true);
  self_->configure_read(handle, caf::io::receive_policy::at_most(kReadBytes));
  arm(*connection, deadline);
  on_data(*connection, {});  // says hello
}

void LaneCore::give_up(SessionId session, SessionEnd end) {
  if (running_ && dialing_.erase(session) != 0) events_.on_session_down(session, std::move(end));
}

void LaneCore::close(SessionId session, TimePoint deadline) {
  if (!running_) return;
  if (dialing_.erase(session) != 0)
    return events_.on_session_down(session, {SessionEndKind::kClosed, "It was closed."});
  Connection* connection = find(session);
  if (!connection || connection->phase == Phase::kClosing) return;
  {
    const std::lock_guard lock(mutex_);
    flows_.erase(session);
  }
  connection->phase = Phase::kClosing;
  connection->tls.say_goodbye();
  flush(*connection);
  half_close_when_flushed(*connection);
  arm(*connection, deadline);
}

void LaneCore::on_data(Connection& connection, std::span<const char> bytes) {
  if (connection.phase >= Phase::kClosing) return;
  const bool stranger = connection.phase == Phase::kHandshake;
  connection.raw_bytes += stranger ? bytes.size() : 0;
  plain_.clear();
  const TlsSession::State state = connection.tls.receive(bytes, plain_);
  flush(connection);
  if (stranger && state == TlsSession::State::kOpen) {
    if (server() && connection.tls.purpose() != TlsPurpose::kMessages)
      return take_enrolment(connection);
    authenticated(connection);
  }
  if (!plain_.empty() && connection.phase < Phase::kClosing &&
      connection.phase != Phase::kHandshake)
    take_frames(connection, plain_);
  if (connection.phase >= Phase::kClosing) return;
  if (state == TlsSession::State::kFailed && connection.phase != Phase::kUp)
    return fail_handshake(connection);
  if (state == TlsSession::State::kFailed)
    return broken(connection, "TLS says: " + connection.tls.failure().text);
  if (state == TlsSession::State::kClosed)
    return end(connection, {SessionEndKind::kPeerClosed, connection.peer + " closed the session."},
               false);
  if (connection.phase == Phase::kHandshake &&
      connection.raw_bytes > limits::kUnauthenticatedBytesMax)
    hard_close(connection);
}

void LaneCore::authenticated(Connection& connection) {
  // It may have come before its certificate was revoked.
  if (server() && context_->revokes(connection.tls.peer_name())) return hard_close(connection);
  drop_stranger(connection);
  self_->configure_read(connection.handle, caf::io::receive_policy::at_most(kReadBytes));
  if (!server()) {
    // In TLS 1.3 the client has finished before the server has looked at its certificate: only
    // the server's first message shows that it is welcome.
    connection.phase = Phase::kQuiet;
    return;
  }
  if (sessions_.size() >= kSessionsMax) {
    stranger_lines_.warn(connection.peer + " is turned away: the head has " +
                             std::to_string(sessions_.size()) + " control sessions.",
                         now());
    return hard_close(connection);
  }
  disarm(connection);
  connection.session = next_session();
  sessions_[connection.session] = &connection;
  come_up(connection);
}

void LaneCore::come_up(Connection& connection) {
  connection.phase = Phase::kUp;
  {
    const std::lock_guard lock(mutex_);
    flows_[connection.session];
  }
  events_.on_session_up(connection.session,
                        {connection.peer, own_end_of(descriptor(connection.handle)),
                         connection.tls.peer_name()});
}

void LaneCore::take_frames(Connection& connection, std::span<const std::byte> plain) {
  std::vector<std::vector<std::byte>> frames;
  const Status fed = connection.frames.feed(plain, frames);
  for (const auto& frame : frames) {
    auto envelope = transport::decode(frame);
    if (!envelope.ok()) return broken(connection, envelope.error().message);
    if (connection.phase == Phase::kQuiet) {
      disarm(connection);
      come_up(connection);
    }
    {
      const std::lock_guard lock(mutex_);
      ++stats_.messages_received;
      stats_.bytes_received += frame.size() + kFrameHeaderBytes;
    }
    learn_protocol(connection.session, *envelope->message);
    events_.on_message(connection.session, std::move(envelope).value());
  }
  if (!fed.ok()) broken(connection, fed.error().message);
}

void LaneCore::write_frame(SessionId session, const std::vector<std::byte>& bytes) {
  Connection* connection = find(session);
  if (!connection || connection->phase != Phase::kUp) return;
  // A failure shows at the next read.
  if (connection->tls.send(frame_header(bytes.size()))) connection->tls.send(bytes);
  {
    const std::lock_guard lock(mutex_);
    const auto flow = flows_.find(session);
    if (flow != flows_.end()) flow->second.queued -= bytes.size() + kFrameHeaderBytes;
  }
  flush(*connection);
}

void LaneCore::flush(Connection& connection) {
  const std::size_t size = connection.tls.take_output(self_->wr_buf(connection.handle));
  if (size == 0) return;
  self_->flush(connection.handle);
  connection.unsent += size;
  const std::lock_guard lock(mutex_);
  const auto flow = flows_.find(connection.session);
  if (flow != flows_.end()) flow->second.wire += size;
}

void LaneCore::on_written(Connection& connection, std::size_t remaining) {
  connection.unsent = remaining;
  half_close_when_flushed(connection);
  auto& buffer = self_->wr_buf(connection.handle);
  if (remaining == 0 && buffer.empty() && buffer.capacity() > kIdleBufferBytes)
    std::vector<char>().swap(buffer);
  const std::lock_guard lock(mutex_);
  const auto flow = flows_.find(connection.session);
  if (flow != flows_.end()) flow->second.wire = remaining;
}

void LaneCore::cut_stuck(SessionId session) {
  Connection* connection = find(session);
  if (!connection) return;
  end(*connection,
      {SessionEndKind::kStuck, connection->peer + " does not take what it is sent: more than " +
                                   std::to_string(options_.unsent_bytes_max) +
                                   " bytes were waiting for it."},
      false);
}

void LaneCore::broken(Connection& connection, const std::string& what) {
  {
    const std::lock_guard lock(mutex_);
    ++stats_.garbage;
  }
  const std::string text = connection.peer + " broke the control lane's format: " + what;
  stranger_lines_.warn(text + " Its session is closed.", now());
  end(connection, {SessionEndKind::kGarbage, text}, true);
}

void LaneCore::end(Connection& connection, SessionEnd reason, bool may_linger) {
  const SessionId session = std::exchange(connection.session, SessionId{});
  if (session.value != 0) {
    sessions_.erase(session);
    const std::lock_guard lock(mutex_);
    flows_.erase(session);
  } else if (connection.phase == Phase::kHandshake) {
    const std::lock_guard lock(mutex_);
    ++stats_.strangers_refused;
  }
  if (may_linger)
    linger(connection);
  else
    hard_close(connection);
  if (session.value != 0) events_.on_session_down(session, std::move(reason));
}

void LaneCore::linger(Connection& connection) {
  connection.phase = Phase::kLingering;
  connection.tls.say_goodbye();
  flush(connection);
  half_close_when_flushed(connection);
  arm(connection, now() + kLinger);
}

/// CAF's close() is of no use here: it forgets the handle at once, without a word when the socket
/// goes, and keeps the socket until the peer's FIN, which a stranger may never send.
void LaneCore::hard_close(Connection& connection) {
  if (connection.phase == Phase::kDead) return;
  connection.phase = Phase::kDead;
  disarm(connection);
  drop_stranger(connection);
  ::shutdown(descriptor(connection.handle), SHUT_RDWR);  // on_closed follows
}

void LaneCore::half_close_when_flushed(Connection& connection) {
  const bool closing = connection.phase == Phase::kClosing || connection.phase == Phase::kLingering;
  if (closing && connection.unsent == 0) ::shutdown(descriptor(connection.handle), SHUT_WR);
}

void LaneCore::on_closed(Handle handle) {
  Connection* connection = find(handle);
  if (!connection) return;
  const SessionId session = connection->session;
  SessionEnd reason{SessionEndKind::kPeerClosed,
                    "The connection to " + connection->peer + " is gone."};
  if (connection->phase == Phase::kClosing)
    reason = {SessionEndKind::kClosed, "The session with " + connection->peer + " was closed."};
  else if (connection->phase < Phase::kUp && !server())
    reason.text = connection->peer + " closed the connection before it said anything.";
  if (connection->phase == Phase::kHandshake && server()) {
    const std::lock_guard lock(mutex_);
    ++stats_.strangers_refused;
  }
  disarm(*connection);
  drop_stranger(*connection);
  sessions_.erase(session);
  {
    const std::lock_guard lock(mutex_);
    flows_.erase(session);
  }
  connections_.erase(handle);
  if (session.value != 0 && running_) events_.on_session_down(session, std::move(reason));
}

void LaneCore::on_tick() {
  if (!running_) return;
  next_tick_ = TimePoint::max();
  const TimePoint time = now();
  while (!deadlines_.empty() && deadlines_.begin()->first <= time) {
    Connection& connection = *find(deadlines_.begin()->second);
    disarm(connection);
    if (connection.phase == Phase::kClosing)
      end(connection,
          {SessionEndKind::kClosed,
           "The session with " + connection.peer + " was closed before all was sent."},
          false);
    else
      end(connection, {SessionEndKind::kDeadline, connection.peer + " did not answer in time."},
          false);
  }
  schedule_tick();
}

void LaneCore::on_quit() {
  running_ = false;
  for (auto& [handle, connection] : connections_) ::shutdown(descriptor(handle), SHUT_RDWR);
  self_->close_all();
  self_->quit();
  self_ = nullptr;
  broker_ = nullptr;
  connections_.clear();
  sessions_.clear();
  strangers_.clear();
  deadlines_.clear();
  ended_.set_value();
}

void LaneCore::add_stranger(Connection& connection) {
  connection.stranger = ++last_stranger_;
  strangers_[connection.stranger] = &connection;
}

void LaneCore::drop_stranger(Connection& connection) {
  if (connection.stranger != 0) strangers_.erase(std::exchange(connection.stranger, 0));
}

void LaneCore::arm(Connection& connection, TimePoint deadline) {
  disarm(connection);
  connection.deadline = deadline;
  deadlines_.emplace(deadline, connection.handle);
  schedule_tick();
}

void LaneCore::disarm(Connection& connection) {
  deadlines_.erase({connection.deadline, connection.handle});
}

/// Ticks cannot be taken back; one that finds nothing due does no harm.
void LaneCore::schedule_tick() {
  if (deadlines_.empty() || deadlines_.begin()->first >= next_tick_) return;
  next_tick_ = deadlines_.begin()->first;
  self_->delayed_send(self_, std::max(next_tick_ - now(), Duration(0)), Tick::value);
}

}  // namespace troupe::control
