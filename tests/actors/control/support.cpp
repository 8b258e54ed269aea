#include "tests/actors/control/support.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "actors/control/frame_reader.h"
#include "tests/patience.h"
#include "transport/codec.h"

namespace troupe {
namespace {

ClusterCredentials fresh() {
  auto made = make_cluster_credentials();
  REQUIRE(made.ok());
  return std::move(made).value();
}

}  // namespace

const ClusterCredentials& own_credentials() {
  static const ClusterCredentials credentials = fresh();
  return credentials;
}
const ClusterCredentials& foreign_credentials() {
  static const ClusterCredentials credentials = fresh();
  return credentials;
}

void Recorder::on_session_up(SessionId session, SessionEnds) {
  {
    const std::lock_guard lock(mutex_);
    ups_.push_back(session);
  }
  if (when_up) when_up(session);
  changed_.notify_all();
}

void Recorder::on_message(SessionId session, Envelope envelope) {
  if (when_message) when_message(session, envelope);
  const std::lock_guard lock(mutex_);
  messages_.push_back(envelope.message);
  changed_.notify_all();
}

void Recorder::on_session_down(SessionId session, SessionEnd end) {
  const std::lock_guard lock(mutex_);
  downs_.push_back({session, std::move(end), now()});
  changed_.notify_all();
}

template <class Condition>
bool Recorder::wait(Condition condition) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kTestPatience, condition);
}

bool Recorder::wait_up(std::size_t count) {
  return wait([&] { return ups_.size() >= count; });
}
bool Recorder::wait_down(std::size_t count) {
  return wait([&] { return downs_.size() >= count; });
}
bool Recorder::wait_messages(std::size_t count) {
  return wait([&] { return messages_.size() >= count; });
}

std::vector<SessionId> Recorder::ups() {
  const std::lock_guard lock(mutex_);
  return ups_;
}
std::vector<Recorder::Down> Recorder::downs() {
  const std::lock_guard lock(mutex_);
  return downs_;
}
std::vector<MessagePtr> Recorder::messages() {
  const std::lock_guard lock(mutex_);
  return messages_;
}

Head::Head(CafSystem& caf, const ControlOptions& options, const Credentials& credentials) {
  events.when_up = [this](SessionId session) { CHECK(server->send(session, greeting()).ok()); };
  events.when_message = [this](SessionId session, const Envelope& envelope) {
    if (const auto* renew = std::get_if<Renew>(envelope.message.get()))
      CHECK(server->send(session, envelope_of(Renewed{renew->sequence})).ok());
  };
  auto made = ControlServer::listen(caf.system(), {"127.0.0.1", 0}, credentials, events, options);
  REQUIRE_MESSAGE(made.ok(), made.error().message);
  server = std::move(made).value();
}

Worker::Worker(CafSystem& caf, const Credentials& credentials) {
  auto made = ControlClient::start(caf.system(), credentials, events);
  REQUIRE_MESSAGE(made.ok(), made.error().message);
  client = std::move(made).value();
}

RawSocket::RawSocket(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
}

RawSocket::~RawSocket() {
  if (fd_ >= 0) ::close(fd_);
}

bool RawSocket::send(std::span<const char> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
  return true;
}

std::vector<char> RawSocket::receive(Duration wait) {
  pollfd ready{fd_, POLLIN, 0};
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(wait).count();
  if (::poll(&ready, 1, static_cast<int>(ms)) <= 0) return {};
  std::vector<char> bytes(1u << 16);
  const ssize_t got = ::recv(fd_, bytes.data(), bytes.size(), 0);
  bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return bytes;
}

bool RawSocket::closed_within(Duration wait) {
  const TimePoint until = now() + wait;
  while (now() < until) {
    pollfd ready{fd_, POLLIN, 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now()).count();
    if (::poll(&ready, 1, static_cast<int>(left)) <= 0) continue;
    char bytes[4096];
    if (::recv(fd_, bytes, sizeof bytes, 0) <= 0) return true;
  }
  return false;
}

RawPeer::RawPeer(std::uint16_t port, const Credentials& credentials)
    : socket_(port), tls_([&] {
        auto context = control::TlsContext::make(credentials, control::TlsSide::kClient);
        REQUIRE(context.ok());
        return *context;
      }()) {
  std::vector<std::byte> plain;
  std::vector<char> out;
  tls_.receive({}, plain);
  while (tls_.take_output(out), socket_.send(out)) {
    out.clear();
    if (tls_.state() != control::TlsSession::State::kHandshake) break;
    const auto bytes = socket_.receive(5s);
    if (bytes.empty()) break;
    tls_.receive(bytes, plain);
  }
}

bool RawPeer::send(std::span<const std::byte> plain) {
  if (!tls_.send(plain)) return false;
  std::vector<char> out;
  tls_.take_output(out);
  return socket_.send(out);
}

std::vector<std::byte> frame_of(const Envelope& envelope) {
  const auto bytes = transport::encode(envelope);
  REQUIRE(bytes.ok());
  auto frame = control::frame_header(bytes->size());
  frame.insert(frame.end(), bytes->begin(), bytes->end());
  return frame;
}

}  // namespace troupe
