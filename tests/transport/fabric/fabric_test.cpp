#include <dirent.h>
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <thread>

#include "tests/promises.h"
#include "tests/transport/fabric/support.h"

namespace troupe::transport::testing {
namespace {

FabricOptions options_of(FabricKind kind) {
  FabricOptions options;
  options.kind = kind;
  return options;
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  DIR* directory = opendir("/proc/self/fd");
  while (readdir(directory)) ++count;
  closedir(directory);
  return count;
}

TEST_CASE("frames of every size arrive bit for bit and in order") {
  for (const FabricKind kind : {FabricKind::kNet, FabricKind::kTcp}) {
    CAPTURE(to_string(kind));
    Node a(1, options_of(kind)), b(2, options_of(kind));
    join(a, b);
    const std::size_t s = limits::kBulkSegmentBytes;
    const std::vector<std::pair<std::size_t, std::size_t>> sizes = {
        {0, 0},       {1, 0},     {0, 1},         {184, 8},     {8, 65536},        {s - 40, 0},
        {s - 40, 1},  {s - 39, 0}, {0, s - 40},   {0, s - 39},  {40, 2 * s - 96},  {3 * s, 17},
        {184, 1 << 20}, {7, (5 << 20) + 3}, {s, s}, {0, 16 << 20}, {100, 0}};
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      REQUIRE(a.fabric->send(b.self, frame(sizes[i].first, sizes[i].second, i)).ok());
    }
    REQUIRE(b.events.wait_frames(a.self, sizes.size()));
    const auto got = b.events.take_frames(a.self);
    // Those without a payload may have overtaken the others.
    std::array<std::size_t, 2> at{};
    for (const Frame& came : got) {
      std::size_t& i = at[came.payload.bytes.empty() ? 1 : 0];
      while (i < sizes.size() && (sizes[i].second == 0) != came.payload.bytes.empty()) ++i;
      REQUIRE(i < sizes.size());
      CAPTURE(i);
      const Frame want = frame(sizes[i].first, sizes[i].second, i);
      CHECK(same(came.header, want.header));
      CHECK(same(came.payload, want.payload));
      CHECK(reinterpret_cast<std::uintptr_t>(came.payload.bytes.data()) % 64 == 0);
      CHECK(reinterpret_cast<std::uintptr_t>(came.header.bytes.data()) % 8 == 0);
      ++i;
    }
    CHECK(b.fabric->stats().frames_received == sizes.size());
    CHECK(b.fabric->stats().garbage == 0);
  }
}

TEST_CASE("three nodes talk both ways at once, each pair in order") {
  Node a(1), b(2), c(3);
  join(a, b);
  join(a, c);
  join(b, c);
  constexpr std::size_t kFrames = 300;
  const auto talk = [](Node& from, Node& to) {
    for (std::size_t i = 0; i < kFrames; ++i) {
      const std::size_t bytes = i % 50 == 0 ? 3'000'000 : i * 13;
      const auto status =
          from.fabric->send(to.self, frame(16, bytes, from.self.node.value * 1000 + i));
      if (!status.ok()) return;
    }
  };
  std::vector<Node*> nodes = {&a, &b, &c};
  std::vector<std::thread> threads;
  for (Node* from : nodes) {
    threads.emplace_back([&, from] {
      for (Node* to : nodes) {
        if (to != from) talk(*from, *to);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (Node* to : nodes) {
    for (Node* from : nodes) {
      if (to == from) continue;
      REQUIRE(to->events.wait_frames(from->self, kFrames));
      const auto got = to->events.take_frames(from->self);
      REQUIRE(got.size() == kFrames);
      for (std::size_t i = 0; i < kFrames; ++i) {
        const Frame want = frame(16, i % 50 == 0 ? 3'000'000 : i * 13,
                                 from->self.node.value * 1000 + i);
        REQUIRE(same(got[i].header, want.header));
        REQUIRE(same(got[i].payload, want.payload));
      }
    }
  }
}

TEST_CASE("a peer that goes away is noticed, and sending to it fails") {
  Node a(1);
  auto b = std::make_unique<Node>(2);
  join(a, *b);
  const PeerKey gone = b->self;
  SUBCASE("destroyed") { b.reset(); }
  SUBCASE("forgotten") { b->fabric->forget(a.self, true); }
  const auto start = now();
  REQUIRE(a.events.wait_down(gone));
  promised("a peer that goes away is noticed", now() - start, 500ms);
  const auto status = a.fabric->send(gone, frame(8, 8, 1));
  REQUIRE_FALSE(status.ok());
  CHECK(status.error().code == ErrorCode::kUnavailable);
  CHECK(a.events.downs(gone) == 1);
  CHECK(a.fabric->stats().peers_up == 0);
  CHECK(eventually([&] { return a.fabric->stats().bytes_unsent == 0; }));
}

TEST_CASE("a wrong token and an old life are refused") {
  FabricOptions quick;
  quick.connect_deadline = 150ms;
  Node a(1, quick), b(2);
  SUBCASE("wrong token") {
    REQUIRE(b.fabric->expect(a.self, kAt, token(1)).ok());
    REQUIRE(a.fabric->connect(b.self, b.fabric->address(), token(2)).ok());
  }
  SUBCASE("an old life calls") {
    REQUIRE(b.fabric->expect(key(1, 2), kAt, token(1)).ok());
    REQUIRE(a.fabric->connect(b.self, b.fabric->address(), token(1)).ok());
  }
  SUBCASE("an old life is called") {
    REQUIRE(b.fabric->expect(a.self, kAt, token(1)).ok());
    REQUIRE(a.fabric->connect(key(2, 0), b.fabric->address(), token(1)).ok());
  }
  const auto is_down = [&](PeerKey peer) { return a.events.downs(peer) > 0; };
  REQUIRE(eventually([&] { return is_down(b.self) || is_down(key(2, 0)); }));
  const PeerKey called = is_down(b.self) ? b.self : key(2, 0);
  CHECK(a.events.reason(called).find("refused") != std::string::npos);
  CHECK(b.fabric->stats().strangers_refused > 0);
  CHECK(b.fabric->stats().peers_up == 0);
  // The right peer still comes in.
  Node right(1, {}, 5);
  join(right, b);
}

TEST_CASE("lives are fenced") {
  Node b(2);
  Node a1(1, {}, 1);
  join(a1, b);
  b.fabric->forget(a1.self, true);
  CHECK(a1.events.wait_down(b.self));
  CHECK(b.events.downs(a1.self) == 0);  // the one who forgets knows
  const auto again = b.fabric->expect(a1.self, kAt, token(1));
  REQUIRE_FALSE(again.ok());
  CHECK(again.error().code == ErrorCode::kRefused);
  Node a2(1, {}, 2);
  join(a2, b);
  CHECK_FALSE(b.fabric->send(a1.self, frame(1, 1, 1)).ok());
  CHECK(b.fabric->send(a2.self, frame(1, 1, 1)).ok());
  CHECK(a2.events.wait_frames(b.self, 1));
  // A fence is of the life that set it: under another head the next one may have that peer again.
  b.fabric->identify({b.self.node, Incarnation{b.self.incarnation.value + 1}});
  CHECK(b.fabric->expect(a1.self, kAt, token(1)).ok());
}

TEST_CASE("calls that make no sense are errors") {
  Node b(2);
  const auto code = [](const Status& status) {
    REQUIRE_FALSE(status.ok());
    return status.error().code;
  };
  CHECK(code(b.fabric->send(key(7), frame(1, 1, 1))) == ErrorCode::kUnavailable);
  CHECK(code(b.fabric->expect(key(2), kAt, token(1))) == ErrorCode::kInvalidArgument);
  CHECK(code(b.fabric->connect(key(2), kAt, token(1))) == ErrorCode::kInvalidArgument);
  for (const char* address : {"", "net", "net:1", "tcp:127.0.0.1:99", "net:127.0.0.1:0",
                              "net:127.0.0.1:99999", "net:localhost:99", "net:[fe80::1]:99"}) {
    CAPTURE(address);
    CHECK(code(b.fabric->connect(key(3), address, token(1))) == ErrorCode::kInvalidArgument);
  }
  Recorder events;
  for (const FabricKind kind : {FabricKind::kShm, FabricKind::kEfa}) {
    auto options = options_of(kind);
    const auto made = make_libfabric(options, events);
    REQUIRE_FALSE(made.ok());
    CHECK(made.error().message.find("not supported yet") != std::string::npos);
  }
  FabricOptions nowhere;
  nowhere.bind_interface = "no-such-interface";
  CHECK_FALSE(make_libfabric(nowhere, events).ok());
}

TEST_CASE("nobody to meet: the peer is down at the deadline") {
  FabricOptions quick;
  quick.connect_deadline = 100ms;
  quick.expect_deadline = 100ms;
  Node b(2, quick);
  REQUIRE(b.fabric->connect(key(3), "net:127.0.0.1:1", token(1)).ok());
  REQUIRE(b.fabric->expect(key(1), kAt, token(1)).ok());
  CHECK(b.events.wait_down(key(3)));
  CHECK(b.events.wait_down(key(1)));
  // For people: where nobody was.
  CHECK(b.events.reason(key(3)).find("127.0.0.1:1") != std::string::npos);
  CHECK(b.events.reason(key(1)).find(b.fabric->address()) != std::string::npos);
  CHECK(b.events.fault(key(3)) == LinkFault::kNobody);
  CHECK(b.events.fault(key(1)) == LinkFault::kNobody);
}

TEST_CASE("either of a pair may go to the other, by any address of loopback") {
  Node a(1), b(2), c(3);
  b.fabric->come_by({"127.0.0.1", "127.0.1.1"});
  c.fabric->come_by({"::1", "::1"});
  join(a, b);
  join(c, a);
  join(b, c);
  CHECK(b.fabric->address().starts_with("net:head:"));
  CHECK(b.fabric->describe().find("the head's machine, port ") != std::string::npos);
}

TEST_CASE("where a node is follows the way by which it comes to the head") {
  Node a(1);
  a.fabric->come_by({"192.0.2.7", "192.0.2.1"});
  CHECK(a.fabric->address().starts_with("net:192.0.2.7:"));
  CHECK(a.fabric->describe().find("net at 192.0.2.7:") == 0);
  a.fabric->come_by({"fe80::7%eth0", "fe80::1%eth0"});
  CHECK(a.fabric->address().starts_with("net:[fe80::7]:"));
  // An address that it does not have: it lies at this end, and is told with the address.
  a.fabric->come_by({"192.0.2.7", "192.0.2.1"});
  FabricOptions quick;
  quick.expect_deadline = 100ms;
  Node lost(2, quick);
  lost.fabric->come_by({"192.0.2.7", "192.0.2.1"});
  REQUIRE(lost.fabric->expect(key(1), "net:192.0.2.8:99", token(1)).ok());
  REQUIRE(lost.events.wait_down(key(1)));
  CHECK(lost.events.fault(key(1)) == LinkFault::kOwnEnd);
  CHECK(lost.events.reason(key(1)).find("192.0.2.7") != std::string::npos);
}

TEST_CASE("an interface that was named beats the way, also where it leads nowhere") {
  FabricOptions named;
  named.bind_interface = "lo";
  Node a(1, named), b(2, named);
  a.fabric->come_by({"192.0.2.7", "192.0.2.1"});
  CHECK(a.fabric->address().starts_with("net:127.0.0.1:"));
  join(a, b);
  const char* far = "net:192.0.2.8:99";
  REQUIRE(a.fabric->connect(key(3), far, token(1)).ok());
  REQUIRE(b.fabric->expect(key(3), far, token(1)).ok());
  for (Node* node : {&a, &b}) {
    REQUIRE(node->events.wait_down(key(3)));
    CHECK(node->events.fault(key(3)) == LinkFault::kOwnEnd);
    CHECK(node->events.reason(key(3)).find("--bind-interface") != std::string::npos);
  }
}

TEST_CASE("what is unsent is bounded, and what is unreleased stops the sender") {
  FabricOptions small;
  small.unsent_bytes_max = 8 << 20;
  small.received_bytes_max = 2 << 20;
  Node a(1, small), b(2, small);
  join(a, b);
  std::size_t accepted = 0;
  Status last;
  while (last.ok() && accepted < 1000) {
    last = a.fabric->send(b.self, frame(0, 1 << 20, accepted));
    if (last.ok()) ++accepted;
    if (accepted > 8) std::this_thread::sleep_for(1ms);
  }
  REQUIRE_FALSE(last.ok());
  CHECK(last.error().code == ErrorCode::kResourceExhausted);
  CHECK(a.fabric->stats().bytes_unsent <= small.unsent_bytes_max);
  // The receiver holds its bound and what was in flight, no more.
  CHECK(b.fabric->stats().bytes_unreleased <=
        small.received_bytes_max + limits::kBulkCredits * limits::kBulkSegmentBytes + (1 << 20));
  // Releasing what came lets the rest come.
  std::size_t arrived = 0;
  REQUIRE(eventually([&] {
    arrived += b.events.take_frames(a.self).size();
    return arrived == accepted;
  }));
  CHECK(a.fabric->send(b.self, frame(0, 1 << 20, 1)).ok());
}

TEST_CASE("a frame without a payload overtakes, whatever lies before it") {
  const std::size_t bytes = 256u << 20;
  // All of it may have come before this thread runs again: then it is tried again.
  for (int tries = 1;; ++tries) {
    Node a(1), b(2);
    join(a, b);
    REQUIRE(a.fabric->send(b.self, {{}, payload(bytes, 1)}).ok());
    std::this_thread::sleep_for(5ms);  // it is under way
    REQUIRE(a.fabric->send(b.self, frame(100, 0, 2)).ok());
    REQUIRE(b.events.wait_frames(a.self, 1));
    const auto first = b.events.take_frames(a.self);
    if (!first[0].payload.empty() && tries < 5) continue;
    REQUIRE(first.size() == 1);
    CHECK(same(first[0].header, frame(100, 0, 2).header));
    REQUIRE(b.events.wait_frames(a.self, 1));
    CHECK(same(b.events.take_frames(a.self)[0].payload, payload(bytes, 1)));
    return;
  }
}

TEST_CASE("a peer gives a sign of life when it is asked, even when it takes no more") {
  FabricOptions small;
  small.received_bytes_max = 1;
  Node a(1), b(2, small);
  join(a, b);
  SUBCASE("idle") {}
  SUBCASE("with all credits gone") {
    for (int i = 0; i < 20; ++i) REQUIRE(a.fabric->send(b.self, frame(0, 1 << 20, 1)).ok());
    REQUIRE(b.events.wait_frames(a.self, 1));
  }
  const auto heard = [&] { return a.fabric->traffic().at(0).heard; };
  CHECK(a.fabric->traffic().at(0).peer == b.self);
  REQUIRE(eventually([&] {  // it is quiet
    const TimePoint before = heard();
    std::this_thread::sleep_for(50ms);
    return heard() == before;
  }));
  for (int i = 0; i < 50; ++i) {
    const TimePoint asked = now();
    a.fabric->ask(b.self);
    REQUIRE(eventually([&] { return heard() >= asked; }));
  }
  CHECK(a.fabric->stats().garbage == 0);
  a.fabric->ask(key(9));  // nobody
  b.fabric.reset();
  REQUIRE(a.events.wait_down(b.self));
  CHECK(a.fabric->traffic().empty());
}

TEST_CASE("an idle fabric costs nothing, after traffic too") {
  Node a(1), b(2);
  join(a, b);
  REQUIRE(a.fabric->send(b.self, frame(8, 1 << 20, 1)).ok());
  REQUIRE(b.events.wait_frames(a.self, 1));
  std::this_thread::sleep_for(20ms);
  const auto cpu = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return std::chrono::seconds(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           std::chrono::microseconds(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
  const auto before = cpu();
  std::this_thread::sleep_for(1s);
  promised_ratio("of a core, by two idle fabrics", (cpu() - before) / 1.0s, 0.002);
}

TEST_CASE("fabrics come and go without leaving descriptors, quickly") {
  { Node warm(1); }  // libfabric keeps some for itself
  const auto before = open_descriptors();
  for (int round = 0; round < 5; ++round) {
    Node a(1);
    auto b = std::make_unique<Node>(2);
    join(a, *b);
    for (int i = 0; i < 50; ++i) REQUIRE(a.fabric->send(b->self, frame(9, 1 << 20, 1)).ok());
    const auto start = now();
    b.reset();
    promised("a fabric ends", now() - start, 1s);
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("the same two nodes meet again and again") {
  Node b(2);
  for (std::uint64_t life = 1; life <= 20; ++life) {
    Node a(1, {}, life);
    join(a, b);
    REQUIRE(a.fabric->send(b.self, frame(3, 100, life)).ok());
    REQUIRE(b.events.wait_frames(a.self, 1));
  }
}

TEST_CASE("received frames outlive their fabric") {
  Frame kept;
  {
    Node a(1), b(2);
    join(a, b);
    REQUIRE(a.fabric->send(b.self, frame(5, 5000, 3)).ok());
    REQUIRE(b.events.wait_frames(a.self, 1));
    kept = b.events.take_frames(a.self).front();
  }
  CHECK(same(kept.payload, frame(5, 5000, 3).payload));
}

}  // namespace
}  // namespace troupe::transport::testing
