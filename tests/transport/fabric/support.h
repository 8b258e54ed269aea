#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/patience.h"
#include "transport/fabric/fabric.h"

namespace troupe::transport::testing {

using namespace std::chrono_literals;

/// Records what a fabric tells, and waits for it.
class Recorder : public FabricEvents {
 public:
  void on_frame(PeerKey from, Frame frame) override {
    std::lock_guard lock(mutex_);
    frames_[from].push_back(std::move(frame));
    changed_.notify_all();
  }
  void on_peer_up(PeerKey peer) override {
    std::lock_guard lock(mutex_);
    ++ups_[peer];
    changed_.notify_all();
  }
  void on_peer_down(PeerKey peer, LinkEnd end) override {
    std::lock_guard lock(mutex_);
    downs_[peer].push_back(std::move(end));
    changed_.notify_all();
  }

  bool wait_up(PeerKey peer, Duration limit = kTestPatience) {
    return wait(limit, [&] { return ups_[peer] > 0; });
  }
  bool wait_down(PeerKey peer, Duration limit = kTestPatience) {
    return wait(limit, [&] { return !downs_[peer].empty(); });
  }
  bool wait_frames(PeerKey from, std::size_t count, Duration limit = kTestPatience) {
    return wait(limit, [&] { return frames_[from].size() >= count; });
  }
  std::vector<Frame> take_frames(PeerKey from) {
    std::lock_guard lock(mutex_);
    return std::exchange(frames_[from], {});
  }
  std::size_t downs(PeerKey peer) {
    std::lock_guard lock(mutex_);
    return downs_[peer].size();
  }
  std::string reason(PeerKey peer) {
    std::lock_guard lock(mutex_);
    return downs_[peer].empty() ? "" : downs_[peer].back().reason;
  }
  LinkFault fault(PeerKey peer) {
    std::lock_guard lock(mutex_);
    REQUIRE(!downs_[peer].empty());
    return downs_[peer].back().fault;
  }

 private:
  bool wait(Duration limit, const std::function<bool()>& condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, condition);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<PeerKey, std::vector<Frame>> frames_;
  std::map<PeerKey, int> ups_;
  std::map<PeerKey, std::vector<LinkEnd>> downs_;
};

inline bool eventually(const std::function<bool()>& condition, Duration limit = kTestPatience) {
  for (const auto end = now() + limit; now() < end;) {
    if (condition()) return true;
    std::this_thread::sleep_for(1ms);
  }
  return condition();
}

inline PeerKey key(std::uint32_t node, std::uint64_t life = 1) {
  return {NodeId{node}, Incarnation{life}};
}

inline FabricToken token(unsigned char seed) {
  FabricToken t;
  for (std::size_t i = 0; i < t.size(); ++i) t[i] = static_cast<std::byte>(seed + i);
  return t;
}

inline Payload payload(std::size_t bytes, std::uint64_t seed) {
  if (bytes == 0) return {};
  auto buffer = std::make_shared<Buffer>(bytes);
  std::mt19937_64 random(seed);
  for (std::size_t i = 0; i < bytes; i += 8) {
    const std::uint64_t value = random();
    std::memcpy(buffer->data() + i, &value, std::min<std::size_t>(8, bytes - i));
  }
  return Payload::of(buffer);
}

inline Frame frame(std::size_t header_bytes, std::size_t payload_bytes, std::uint64_t seed) {
  return {payload(header_bytes, seed * 2 + 1), payload(payload_bytes, seed * 2 + 2)};
}

inline bool same(const Payload& a, const Payload& b) {
  return a.bytes.size() == b.bytes.size() &&
         (a.bytes.empty() || std::memcmp(a.bytes.data(), b.bytes.data(), a.bytes.size()) == 0);
}

/// A node of a test: a fabric and what it said.
struct Node {
  explicit Node(std::uint32_t id, FabricOptions options = {}, std::uint64_t life = 1) {
    options.self = key(id, life);
    self = options.self;
    auto made = make_libfabric(options, events);
    REQUIRE_MESSAGE(made.ok(), (made.ok() ? "" : made.error().message));
    fabric = std::move(*made);
  }

  PeerKey self;
  Recorder events;
  std::unique_ptr<Fabric> fabric;
};

/// Where a peer of this machine is; nobody goes there.
inline const std::string kAt = "net:head:1";

/// Has one node call the other one.
inline void meet(Node& low, Node& high, unsigned char seed = 1) {
  REQUIRE(high.fabric->expect(low.self, low.fabric->address(), token(seed)).ok());
  REQUIRE(low.fabric->connect(high.self, high.fabric->address(), token(seed)).ok());
}
inline void join(Node& low, Node& high) {
  meet(low, high);
  REQUIRE_MESSAGE(low.events.wait_up(high.self), low.events.reason(high.self));
  REQUIRE(high.events.wait_up(low.self));
}

}  // namespace troupe::transport::testing
