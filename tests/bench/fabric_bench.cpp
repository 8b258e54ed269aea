// Round trips and throughput of the fabric between two fabrics of this process, next to raw TCP
// with blocking reads. Prints a table; never part of pass or fail.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "runtime/clock.h"
#include "transport/fabric/fabric.h"

namespace troupe::transport {
namespace {

double microseconds(Duration d) { return std::chrono::duration<double, std::micro>(d).count(); }

/// Sends the next frame when the answer to the last one is there, as an actor would.
struct Caller : FabricEvents {
  void on_frame(PeerKey from, Frame frame) override {
    times.push_back(microseconds(now() - sent_at));
    if (static_cast<int>(times.size()) < rounds) {
      sent_at = now();
      (void)fabric->send(from, std::move(frame));
    } else {
      done = true;
      done.notify_all();
    }
  }
  void on_peer_up(PeerKey) override { up = true; up.notify_all(); }
  void on_peer_down(PeerKey, LinkEnd) override {}
  Fabric* fabric = nullptr;
  int rounds = 0;
  TimePoint sent_at;
  std::vector<double> times;
  std::atomic<bool> up{false}, done{false};
};

/// Answers each frame with its payload, from the fabric's thread.
struct Echo : FabricEvents {
  void on_frame(PeerKey from, Frame frame) override {
    if (answer) (void)fabric->send(from, std::move(frame));
    frames.fetch_add(1);
    frames.notify_all();
  }
  void on_peer_up(PeerKey) override {}
  void on_peer_down(PeerKey, LinkEnd) override {}
  Fabric* fabric = nullptr;
  std::atomic<bool> answer{true};
  std::atomic<std::uint64_t> frames{0};
};

Frame make_frame(std::size_t bytes) {
  Frame frame;
  frame.payload = Payload::of(std::make_shared<Buffer>(bytes));
  return frame;
}

void bench_fabric(FabricKind kind, std::size_t bytes, int rounds) {
  Caller events;
  Echo echo;
  FabricOptions options;
  options.kind = kind;
  options.self = {NodeId{1}, Incarnation{1}};
  auto a = make_libfabric(options, events);
  options.self.node = NodeId{2};
  auto b = make_libfabric(options, echo);
  if (!a || !b) return;
  echo.fabric = b->get();
  const PeerKey to{NodeId{2}, Incarnation{1}};
  if (!(*b)->expect({NodeId{1}, Incarnation{1}}, (*a)->address(), {}).ok()) return;
  if (!(*a)->connect(to, (*b)->address(), {}).ok()) return;
  events.up.wait(false);
  const Frame frame = make_frame(bytes);
  events.fabric = a->get();
  events.rounds = rounds;
  events.sent_at = now();
  (void)(*a)->send(to, frame);
  events.done.wait(false);
  auto& times = events.times;
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  echo.answer = false;
  const auto start = now();
  const auto first = echo.frames.load();
  for (int i = 0; i < rounds; ++i) (void)(*a)->send(to, frame);
  for (auto n = echo.frames.load(); n < first + static_cast<unsigned>(rounds);
       n = echo.frames.load()) {
    echo.frames.wait(n);
  }
  const double seconds = microseconds(now() - start) / 1e6;
  std::printf("%-8s %9zu B  %9.1f us round trip  %7.2f GB/s\n",
              std::string(to_string(kind)).c_str(), bytes,
              times[static_cast<std::size_t>(rounds / 2)],
              static_cast<double>(bytes) * rounds / seconds / 1e9);
}

bool read_all(int fd, std::byte* to, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t n = read(fd, to + done, bytes - done);
    if (n <= 0) return false;
    done += static_cast<std::size_t>(n);
  }
  return true;
}

bool write_all(int fd, const std::byte* from, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t n = send(fd, from + done, bytes - done, MSG_NOSIGNAL);
    if (n <= 0) return false;
    done += static_cast<std::size_t>(n);
  }
  return true;
}

void bench_tcp(std::size_t bytes, int rounds) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(at);
  if (bind(listener, reinterpret_cast<sockaddr*>(&at), length) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&at), &length) != 0) {
    return;
  }
  std::thread other([&] {
    const int fd = accept(listener, nullptr, nullptr);
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    std::vector<std::byte> buffer(bytes);
    for (int i = 0; i < rounds; ++i) {
      if (!read_all(fd, buffer.data(), bytes) || !write_all(fd, buffer.data(), bytes)) break;
    }
    for (int i = 0; i < rounds; ++i) {
      if (!read_all(fd, buffer.data(), bytes)) break;
    }
    (void)write_all(fd, buffer.data(), 1);
    close(fd);
  });
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(fd, reinterpret_cast<sockaddr*>(&at), length) != 0) std::terminate();
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  std::vector<std::byte> buffer(bytes);
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    const auto start = now();
    (void)write_all(fd, buffer.data(), bytes);
    (void)read_all(fd, buffer.data(), bytes);
    times.push_back(microseconds(now() - start));
  }
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  const auto start = now();
  for (int i = 0; i < rounds; ++i) (void)write_all(fd, buffer.data(), bytes);
  (void)read_all(fd, buffer.data(), 1);
  const double seconds = microseconds(now() - start) / 1e6;
  std::printf("%-8s %9zu B  %9.1f us round trip  %7.2f GB/s\n", "raw tcp", bytes,
              times[static_cast<std::size_t>(rounds / 2)],
              static_cast<double>(bytes) * rounds / seconds / 1e9);
  other.join();
  close(fd);
  close(listener);
}

}  // namespace
}  // namespace troupe::transport

int main() {
  using namespace troupe::transport;
  for (const std::size_t bytes : {8u, 65536u, 1u << 20}) {
    const int rounds = bytes > 100'000 ? 500 : 5000;
    bench_tcp(bytes, rounds);
    bench_fabric(FabricKind::kNet, bytes, rounds);
    bench_fabric(FabricKind::kTcp, bytes, rounds);
  }
}
