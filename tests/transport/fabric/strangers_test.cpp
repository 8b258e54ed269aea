#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <arpa/inet.h>

#include <atomic>
#include <thread>

#include "tests/promises.h"
#include "tests/transport/fabric/support.h"
#include "transport/fabric/gate.h"

namespace troupe::transport::testing {
namespace {

std::uint16_t port_of(const Fabric& fabric) {
  const std::string address = fabric.address();
  return static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
}

/// A connection to a port of this machine that says `bytes` and then nothing.
Descriptor stranger(std::uint16_t port, const std::vector<unsigned char>& bytes) {
  Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) return {};
  if (!bytes.empty()) (void)!::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  return fd;
}

/// What is known to hang libfabric's own listener, what our own gate might stumble over, and noise.
std::vector<std::vector<unsigned char>> greetings() {
  std::vector<std::vector<unsigned char>> all = {{}, {0x03}, {0x03, 0x00, 0x00, 0xff}};
  std::vector<unsigned char> header(32, 0);
  header[0] = 0x03;
  header[3] = 0xff;
  all.push_back(header);
  header.resize(16);
  all.push_back(header);
  GateHello hello{kFabricProtocol, key(1), key(2), token(9)};
  const auto good = encode(hello);
  std::vector<unsigned char> bytes(good.size());
  std::memcpy(bytes.data(), good.data(), good.size());
  all.push_back(bytes);                               // a wrong token
  all.emplace_back(bytes.begin(), bytes.begin() + 63);  // almost all
  bytes[4] = 9;
  all.push_back(bytes);  // another version
  std::mt19937 random(5);
  for (int i = 0; i < 20; ++i) {
    std::vector<unsigned char> noise(random() % 300);
    for (auto& byte : noise) byte = static_cast<unsigned char>(random());
    all.push_back(noise);
  }
  return all;
}

TEST_CASE("strangers neither keep peers out nor slow the ones that are in") {
  Node a(1), b(2), d(4);
  join(a, b);
  join(b, d);
  // Node 4 expects node 3 and is besieged meanwhile.
  REQUIRE(d.fabric->expect(key(3), kAt, token(1)).ok());
  const auto port = port_of(*d.fabric);
  REQUIRE(eventually([&] { return static_cast<bool>(stranger(port, {})); }));
  std::vector<Descriptor> strangers;
  const auto kinds = greetings();
  for (int i = 0; i < 400; ++i) strangers.push_back(stranger(port, kinds[i % kinds.size()]));
  // Traffic goes on at its own pace.
  const auto start = now();
  for (int i = 0; i < 100; ++i) {
    REQUIRE(b.fabric->send(d.self, frame(8, 1000, 1)).ok());
    REQUIRE(d.events.wait_frames(b.self, static_cast<std::size_t>(i) + 1));
  }
  promised("a hundred messages among strangers", now() - start, 1s);
  // And the peer comes in.
  Node c(3);
  const auto called = now();
  REQUIRE(c.fabric->connect(d.self, d.fabric->address(), token(1)).ok());
  REQUIRE_MESSAGE(c.events.wait_up(d.self), c.events.reason(d.self));
  promised("a peer comes in among strangers", now() - called, 1s);
  REQUIRE(d.events.wait_up(key(3)));
  CHECK(d.fabric->stats().strangers_refused > 50);
  CHECK(d.fabric->stats().peers_up == 2);
  // Nobody is expected any more: the listener is closed.
  CHECK(eventually([&] { return !stranger(port, {}); }));
}

TEST_CASE("strangers that keep coming do not keep a peer out") {
  Node b(2), c(3);
  REQUIRE(c.fabric->expect(key(1), kAt, token(1)).ok());
  const auto port = port_of(*c.fabric);
  std::atomic<bool> stop{false};
  std::thread siege([&] {
    const auto kinds = greetings();
    std::vector<Descriptor> held;
    for (std::size_t i = 0; !stop; ++i) {
      held.push_back(stranger(port, kinds[i % kinds.size()]));
      if (held.size() > 300) held.clear();
    }
  });
  Duration longest{0};
  for (std::uint64_t life = 1; life <= 5; ++life) {
    Node a(1, {}, life);
    const auto start = now();
    meet(a, c);
    CHECK_MESSAGE(a.events.wait_up(c.self), a.events.reason(c.self));
    longest = std::max(longest, now() - start);
  }
  stop = true;
  siege.join();
  promised("a peer comes in while strangers do", longest, 1s);
}

TEST_CASE("the provider's own door survives half a header") {
  // Whoever finds the provider's port in the moment it is open.
  FabricOptions options;
  auto provider = open_provider(options);
  REQUIRE(provider.ok());
  auto door = Doorway::open(**provider, (*provider)->host);
  REQUIRE(door.ok());
  std::vector<Descriptor> strangers;
  for (const auto& kind : greetings()) strangers.push_back(stranger((*door)->port(), kind));
  const auto start = now();
  while (now() - start < 300ms) CHECK_FALSE((*door)->next().has_value());
  // One stranger costs the read timeout; none hangs the reader.
  const auto last = now();
  (*door)->next();
  promised("a stranger costs the provider's reader", now() - last, 1s);
  door->reset();
  strangers.clear();
}

}  // namespace
}  // namespace troupe::transport::testing
