#include "actors/control/control_lane.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <random>
#include <thread>

#include "actors/control/dialer.h"
#include "actors/control/pem.h"
#include "tests/actors/control/support.h"
#include "tests/patience.h"
#include "tests/promises.h"

using namespace troupe;

namespace {

std::unique_ptr<CafSystem> make_caf() {
  auto caf = CafSystem::make();
  REQUIRE(caf.ok());
  return std::move(caf).value();
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    ++count;
  return count;
}

/// A head whose certificate the worker trusts, but that trusts another CA: one connection.
struct StrictServer {
  int fd;
  std::uint16_t port;
  std::thread thread;

  StrictServer() {
    const auto listening = control::open_listener({"127.0.0.1", 0});
    REQUIRE(listening.ok());
    fd = listening->fd;
    port = listening->port;
    thread = std::thread([this] { serve(); });
  }
  ~StrictServer() {
    thread.join();
    ::close(fd);
  }

  void serve() {
    pollfd ready{fd, POLLIN, 0};
    ::poll(&ready, 1, 5000);
    const int peer = ::accept(fd, nullptr, nullptr);
    const control::ContextPtr context(SSL_CTX_new(TLS_method()));
    const auto certificate = control::read_certificate(own_credentials().head.certificate);
    const auto key = control::read_key(own_credentials().head.private_key);
    const auto ca = control::read_certificate(foreign_credentials().head.ca_certificate);
    SSL_CTX_use_certificate(context.get(), certificate.get());
    SSL_CTX_use_PrivateKey(context.get(), key.get());
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), ca.get());
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    const control::SslPtr ssl(SSL_new(context.get()));
    SSL_set_fd(ssl.get(), peer);
    CHECK(SSL_accept(ssl.get()) != 1);
    ::shutdown(peer, SHUT_WR);
    char rest[4096];
    while (::read(peer, rest, sizeof rest) > 0) {
    }
    ::close(peer);
  }
};

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return t.tv_sec + t.tv_usec * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

TEST_CASE("messages go both ways, in order, up to megabytes") {
  const auto caf = make_caf();
  Head head(*caf);
  Worker worker(*caf);
  const SessionId session = worker.client->connect(head.address(), 5s);
  REQUIRE(worker.events.wait_messages(1));
  CHECK(worker.events.ups() == std::vector<SessionId>{session});
  CHECK(std::holds_alternative<Greeting>(*worker.events.messages()[0]));

  for (std::uint64_t i = 0; i < 5000; ++i)
    REQUIRE(worker.client->send(session, envelope_of(Renew{i, {}, {}})).ok());
  REQUIRE(worker.events.wait_messages(5001));
  const auto messages = worker.events.messages();
  bool in_order = true;
  for (std::uint64_t i = 0; i < 5000; ++i)
    in_order = in_order && std::get<Renewed>(*messages[i + 1]).sequence == i;
  CHECK(in_order);

  Submit large;
  for (int i = 0; i < 256 * 1024; ++i) large.prompt.push_back(i * 37 % 100000);
  for (int i = 0; i < 8; ++i) REQUIRE(worker.client->send(session, envelope_of(large)).ok());
  REQUIRE(head.events.wait_messages(5008));
  CHECK(std::get<Submit>(*head.events.messages().back()).prompt == large.prompt);
  CHECK(worker.client->stats().messages_sent == 5008);
  CHECK(head.server->stats().messages_received == 5008);
  CHECK(head.server->stats().sessions == 1);
}

TEST_CASE("an end is not sent what its version does not know") {
  const auto caf = make_caf();
  Head head(*caf);
  Worker worker(*caf);
  const SessionId session = worker.client->connect(head.address(), 5s);
  REQUIRE(worker.events.wait_messages(1));  // the head has greeted
  const SessionId other_end = head.events.ups()[0];
  Join join;
  join.version = "1";
  SUBCASE("of the same version") { join.protocol = kProtocol; }
  SUBCASE("of the one before") { join.protocol = {kProtocol.oldest, kProtocol.newest - 1}; }
  SUBCASE("that has not said anything") { join.protocol = {0, 0}; }
  if (join.protocol.newest != 0) {
    REQUIRE(worker.client->send(session, envelope_of(join)).ok());
    REQUIRE(head.events.wait_messages(1));
  }
  const auto copy_of = [](JournalRecord record) {
    return envelope_of(JournalCopy{1, 1, true, false, false, {std::move(record)}});
  };
  CHECK(head.server->send(other_end, copy_of(JournalForgotten{3})).ok());
  const Status newer = head.server->send(other_end, copy_of(JournalCrashes{3, 1, 9}));
  CHECK(newer.ok() == (join.protocol == kProtocol));
  if (!newer.ok()) CHECK(newer.error().code == ErrorCode::kRefused);
}

TEST_CASE("closing delivers what was sent before") {
  const auto caf = make_caf();
  Head head(*caf);
  Worker worker(*caf);
  const SessionId session = worker.client->connect(head.address(), 5s);
  REQUIRE(worker.events.wait_up(1));
  for (int i = 0; i < 100; ++i)
    REQUIRE(worker.client->send(session, envelope_of(Leave{std::string(10000, 'x')})).ok());
  worker.client->close(session);
  REQUIRE(worker.events.wait_down(1));
  CHECK(worker.events.downs()[0].end.kind == SessionEndKind::kClosed);
  REQUIRE(head.events.wait_down(1));
  CHECK(head.events.downs()[0].end.kind == SessionEndKind::kPeerClosed);
  CHECK(head.events.messages().size() == 100);
  CHECK(worker.client->send(session, greeting()).error().code == ErrorCode::kUnavailable);
  CHECK(head.server->stats().sessions == 0);
}

TEST_CASE("a refusal reaches the client before its session is closed") {
  const auto caf = make_caf();
  Head head(*caf);
  head.events.when_up = [&](SessionId session) {
    CHECK(head.server->send(session, envelope_of(Refused{ErrorCode::kRefused, "no"})).ok());
    head.server->close(session);
  };
  Worker worker(*caf);
  worker.client->connect(head.address(), 5s);
  REQUIRE(worker.events.wait_down(1));
  CHECK(worker.events.downs()[0].end.kind == SessionEndKind::kPeerClosed);
  REQUIRE(worker.events.messages().size() == 1);
  CHECK(std::get<Refused>(*worker.events.messages()[0]).reason == "no");
}

TEST_CASE("why a connect failed is told in its own words") {
  const auto caf = make_caf();
  const auto failure = [&](const HostPort& address, const Credentials& credentials,
                           Duration deadline) {
    Worker worker(*caf, credentials);
    const TimePoint start = now();
    worker.client->connect(address, deadline);
    REQUIRE(worker.events.wait_down(1));
    promised("a connect has failed", now() - start, deadline + 1s);
    CHECK(worker.events.ups().empty());
    return worker.events.downs()[0].end;
  };
  const Credentials& own = own_credentials().worker;
  Head head(*caf);

  SUBCASE("nobody listens") {
    const SessionEnd end = failure({"127.0.0.1", 1}, own, 2s);
    CHECK(end.kind == SessionEndKind::kUnreachable);
    CHECK(end.text.find("127.0.0.1:1") != std::string::npos);
  }
  SUBCASE("no such name") {
    const SessionEnd end = failure({"no-such-host.invalid", 6379}, own, 3s);
    const bool expected =
        end.kind == SessionEndKind::kUnreachable || end.kind == SessionEndKind::kDeadline;
    CHECK(expected);
    CHECK(end.text.find("no-such-host.invalid") != std::string::npos);
  }
  SUBCASE("a foreign certificate: neither knows the other") {
    const SessionEnd end = failure(head.address(), foreign_credentials().worker, 5s);
    CHECK(end.kind == SessionEndKind::kForeign);
    CHECK(end.text.find("join file") != std::string::npos);
  }
  SUBCASE("only the head does not know the worker, which shows after the worker's handshake") {
    StrictServer strict;
    const SessionEnd end = failure({"127.0.0.1", strict.port}, own, 5s);
    CHECK(end.kind == SessionEndKind::kForeign);
    CHECK(end.text.find("join file") != std::string::npos);
  }
  SUBCASE("what answers is no TLS at all") {
    const auto listening = control::open_listener({"127.0.0.1", 0});
    REQUIRE(listening.ok());
    std::thread server([&] {
      pollfd ready{listening->fd, POLLIN, 0};
      ::poll(&ready, 1, 5000);
      const int fd = ::accept(listening->fd, nullptr, nullptr);
      [[maybe_unused]] const auto sent = ::write(fd, "HTTP/1.1 400 Bad Request\r\n\r\n", 28);
      ::close(fd);
    });
    const SessionEnd end = failure({"127.0.0.1", listening->port}, own, 5s);
    server.join();
    ::close(listening->fd);
    CHECK(end.kind == SessionEndKind::kGarbage);
  }
  SUBCASE("a worker's certificate does not make a head") {
    Head impostor(*caf, {}, own);
    const SessionEnd end = failure(impostor.address(), own, 5s);
    CHECK(end.kind == SessionEndKind::kForeign);
  }
  SUBCASE("a listener that never says a word") {
    Head silent(*caf);
    silent.events.when_up = {};  // no greeting
    const SessionEnd end = failure(silent.address(), own, 300ms);
    CHECK(end.kind == SessionEndKind::kDeadline);
  }
}

TEST_CASE("a port in use and a foreign address are clear errors") {
  const auto caf = make_caf();
  Head head(*caf);
  Recorder events;
  const Credentials& own = own_credentials().head;
  auto busy = ControlServer::listen(caf->system(), head.address(), own, events);
  REQUIRE(!busy.ok());
  CHECK(busy.error().message == "Port " + std::to_string(head.server->port()) +
                                    " on 127.0.0.1 is in use; choose another with --listen.");
  CHECK(!ControlServer::listen(caf->system(), {"192.0.2.1", 0}, own, events).ok());
  CHECK(!ControlServer::listen(caf->system(), {"no-such-host.invalid", 0}, own, events).ok());
}

TEST_CASE("a peer that is killed is noticed at once") {
  const auto& credentials = own_credentials();
  int port_pipe[2];
  REQUIRE(::pipe(port_pipe) == 0);
  const pid_t child = ::fork();  // before there are threads
  if (child == 0) {
    std::uint16_t port = 0;
    if (::read(port_pipe[0], &port, sizeof port) == sizeof port) {
      RawPeer peer(port, credentials.worker);
      ::pause();
    }
    ::_exit(0);
  }
  {
    const auto caf = make_caf();
    Head head(*caf);
    const std::uint16_t port = head.server->port();
    REQUIRE(::write(port_pipe[1], &port, sizeof port) == sizeof port);
    REQUIRE(head.events.wait_up(1));
    const TimePoint killed = now();
    ::kill(child, SIGKILL);
    REQUIRE(head.events.wait_down(1));
    CHECK(head.events.downs()[0].end.kind == SessionEndKind::kPeerClosed);
    promised("a peer that is killed is noticed", head.events.downs()[0].when - killed, 50ms);
  }
  ::waitpid(child, nullptr, 0);
  ::close(port_pipe[0]);
  ::close(port_pipe[1]);
}

TEST_CASE("a peer that takes nothing is cut off, and memory stays bounded") {
  const auto caf = make_caf();
  ControlOptions options;
  options.unsent_bytes_max = 8u << 20;
  Head head(*caf, options);
  RawPeer peer(head.server->port(), own_credentials().worker);
  REQUIRE(head.events.wait_up(1));
  const SessionId session = head.events.ups()[0];
  const Envelope news = envelope_of(StatusReply{1, std::string(1u << 20, 'x')});
  Status sent;
  int count = 0;
  for (; count < 100 && sent.ok(); ++count) sent = head.server->send(session, news);
  REQUIRE(!sent.ok());
  CHECK(sent.error().code == ErrorCode::kResourceExhausted);
  CHECK(count > 7);
  REQUIRE(head.events.wait_down(1));
  CHECK(head.events.downs()[0].end.kind == SessionEndKind::kStuck);
  CHECK(head.server->send(session, news).error().code == ErrorCode::kUnavailable);
}

TEST_CASE("garbage from a peer with a certificate closes its session only") {
  const auto caf = make_caf();
  Head head(*caf);
  Worker worker(*caf);
  const SessionId good = worker.client->connect(head.address(), 5s);
  REQUIRE(worker.events.wait_up(1));
  std::mt19937_64 random(11);
  const auto frame = frame_of(envelope_of(Renew{7, {{1, 0.5f}}, {{1, 2, 3, 4, 3, 2}}}));
  std::vector<std::vector<std::byte>> bad = {
      {std::byte{0xFF}, std::byte{0xFF}, std::byte{0xFF}, std::byte{0x7F}},  // 2 GiB
      std::vector<std::byte>(4),                                             // nothing
      {std::byte{3}, std::byte{}, std::byte{}, std::byte{}, std::byte{}, std::byte{}, std::byte{}},
  };
  auto shorter = frame;  // whole by its header, cut inside
  shorter.resize(shorter.size() - 16);
  shorter[0] = static_cast<std::byte>(shorter.size() - 4);
  bad.push_back(shorter);
  auto flipped = frame;
  flipped[6] ^= std::byte{0xFF};  // the segment table
  bad.push_back(flipped);
  for (const auto& bytes : bad) {
    RawPeer peer(head.server->port(), own_credentials().worker);
    REQUIRE(peer.open());
    CHECK(peer.send(frame));
    CHECK(peer.send(bytes));
    CHECK(peer.closed_within(kTestPatience));
  }
  REQUIRE(head.events.wait_down(bad.size()));
  for (const auto& down : head.events.downs()) CHECK(down.end.kind == SessionEndKind::kGarbage);
  CHECK(head.server->stats().garbage == bad.size());

  // A frame that never ends and a session that ends in the middle of one.
  for (int i = 0; i < 3; ++i) {
    RawPeer peer(head.server->port(), own_credentials().worker);
    peer.send(std::span(frame).first(frame.size() / 2));
  }
  REQUIRE(head.events.wait_down(bad.size() + 3));
  CHECK(worker.client->send(good, envelope_of(Renew{1, {}, {}})).ok());
  CHECK(worker.events.wait_messages(2));
  CHECK(worker.events.downs().empty());
}

TEST_CASE("strangers by the thousand do not disturb a member") {
  const auto caf = make_caf();
  ControlOptions options;
  options.handshake_deadline = 2s;
  const std::size_t before = open_descriptors();
  Head head(*caf, options);
  Worker worker(*caf);
  const SessionId session = worker.client->connect(head.address(), 5s);
  REQUIRE(worker.events.wait_messages(1));

  std::atomic<bool> done{false};
  std::thread crowd([&] {
    std::mt19937_64 random(5);
    std::vector<RawSocket> held;
    std::vector<char> noise(2000);
    for (auto& c : noise) c = static_cast<char>(random());
    const char client_hello_start[] = {0x16, 0x03, 0x01, 0x7F, 0x00, 0x01, 0x00, 0x02};
    for (int i = 0; i < 10000; ++i) {
      RawSocket socket(head.server->port());
      if (i % 4 == 0) socket.send(std::span(noise).first(random() % noise.size()));
      if (i % 4 == 1) socket.send(client_hello_start);
      if (i % 4 <= 2) continue;  // gone at once
      held.push_back(std::move(socket));
      if (held.size() > 400) held.clear();
    }
    done = true;
  });
  std::vector<double> latencies_ms;
  std::size_t most_descriptors = 0;
  for (std::uint64_t i = 1; !done || i < 100; ++i) {
    const TimePoint start = now();
    if (!worker.client->send(session, envelope_of(Renew{i, {}, {}})).ok()) break;
    if (!worker.events.wait_messages(i + 1)) break;
    latencies_ms.push_back(std::chrono::duration<double, std::milli>(now() - start).count());
    if (i % 64 == 0) most_descriptors = std::max(most_descriptors, open_descriptors());
  }
  crowd.join();
  CHECK(worker.events.downs().empty());
  std::ranges::sort(latencies_ms);
  REQUIRE(latencies_ms.size() >= 99);
  using Milliseconds = std::chrono::duration<double, std::milli>;
  promised("a member's ping among strangers, median",
           Milliseconds(latencies_ms[latencies_ms.size() / 2]), 10ms);
  promised("a member's ping among strangers, worst", Milliseconds(latencies_ms.back()), 250ms);
  CHECK(most_descriptors < 2000);

  // The last ones go with the handshake deadline, and a new member comes in.
  Worker second(*caf);
  second.client->connect(head.address(), 5s);
  CHECK(second.events.wait_up(1));
  const TimePoint until = now() + kTestPatience;
  while (head.server->stats().strangers_refused < 10000 && now() < until)
    std::this_thread::sleep_for(10ms);
  CHECK(head.server->stats().strangers_refused == 10000);
  while (open_descriptors() > before + 20 && now() < until) std::this_thread::sleep_for(10ms);
  CHECK(open_descriptors() <= before + 20);
}

TEST_CASE("silence before the handshake is cut off at its deadline, noise at its bound") {
  const auto caf = make_caf();
  ControlOptions options;
  options.handshake_deadline = 300ms;
  Head head(*caf, options);
  const TimePoint start = now();
  RawSocket silent(head.server->port());
  CHECK(silent.closed_within(kTestPatience));
  CHECK(now() - start >= 250ms);
  promised("silence is cut off", now() - start, 1s);
  RawSocket noisy(head.server->port());
  noisy.send(std::vector<char>(1000, 'x'));
  const TimePoint spoke = now();
  CHECK(noisy.closed_within(kTestPatience));
  promised("noise is cut off", now() - spoke, 200ms);
}

TEST_CASE("a lane at rest costs nothing") {
  const auto caf = make_caf();
  Head head(*caf);
  Worker worker(*caf);
  worker.client->connect(head.address(), 5s);
  REQUIRE(worker.events.wait_up(1));
  std::this_thread::sleep_for(200ms);
  const double before = cpu_seconds();
  std::this_thread::sleep_for(2s);
  promised_ratio("of a core, by a lane at rest", (cpu_seconds() - before) / 2, 0.005);
}

TEST_CASE("lanes come and go without leaving anything open") {
  { const auto caf = make_caf(); }
  const std::size_t before = open_descriptors();
  for (int i = 0; i < 5; ++i) {
    const auto caf = make_caf();
    Head head(*caf);
    Worker worker(*caf);
    const SessionId session = worker.client->connect(head.address(), 5s);
    REQUIRE(worker.events.wait_up(1));
    CHECK(worker.client->send(session, envelope_of(Renew{1, {}, {}})).ok());
    worker.client->connect({"192.0.2.1", 6379}, 30s);  // never answered; ends with its owner
  }
  CHECK(open_descriptors() == before);
}
