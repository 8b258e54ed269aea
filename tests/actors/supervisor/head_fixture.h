#pragma once

#include <map>
#include <optional>
#include <string>

#include "actors/supervisor/status.h"
#include "actors/supervisor/supervisor.h"

/// A Supervisor whose door, clock and members the test plays.
namespace troupe::testing {

using namespace std::chrono_literals;

inline constexpr std::uint64_t kMiB = 1ull << 20;

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline SupervisorOptions options() {
  SupervisorOptions o;
  o.cluster_id = "c1";
  o.version = "0.1.0";
  o.model_path = "/models/m";
  o.model_name = "m";
  o.checkpoint_hash = "abc";
  o.host = "here";
  o.pid = 10;
  o.join_line = "troupe worker --head here:6379";
  o.engine.max_model_len = 128;
  o.engine.min_devices = 1;
  o.costs = [](Numerics) {
    ModelCosts m;
    m.layers = {{kMiB, false}, {kMiB, true}};
    m.num_experts = 4;
    m.expert_bytes = 1000;
    m.kv_bytes_per_token_layer = 8;
    return m;
  };
  o.random = [n = 0](std::span<std::byte> bytes) mutable {
    for (auto& b : bytes) b = static_cast<std::byte>(++n);
  };
  o.incarnation = Incarnation{1000};
  o.started = TimePoint{} + 1h;
  o.started_unix_ms = 1'700'000'000'000;
  return o;
}

inline Join good_join(std::int32_t pid = 100) {
  Join j;
  j.version = "0.1.0";
  j.host = "here";
  j.pid = pid;
  j.numerics = {Numerics::kReference, Numerics::kAvx2};
  j.checkpoint_hash = "abc";
  j.devices = {{"cpu", 64 * kMiB, 2}};
  j.fabric_address = "127.0.0.1:1";
  return j;
}

/// A Supervisor and the sessions at its door.
struct Head {
  Supervisor s;
  TimePoint now = TimePoint{} + 1h;
  SupervisorActions last;

  explicit Head(SupervisorOptions o = options()) : s(std::move(o)) {
    s.set_status_source([this](TimePoint t) { return status_json(s, {}, t); });
  }
  void up(std::uint32_t session) {
    last = {};
    s.session_up(session, "peer", now, last);
  }
  void down(std::uint32_t session) {
    last = {};
    s.session_down(session, "reset", now, last);
  }
  template <class T>
  void from(const Address& address, T message) {
    last = {};
    s.on({address, s.address(), message_of(std::move(message))}, now, last);
  }
  template <class T>
  void from_session(std::uint32_t session, T message) {
    from(Address{kHeadNode, s.options().incarnation, {ActorKind::kClient, session}},
         std::move(message));
  }
  void wait(Duration d) {
    now += d;
    last = {};
    s.on_wake(now, last);
  }
  /// The address that a worker got, or none if it was refused.
  std::optional<Address> join(std::uint32_t session, const Join& j) {
    up(session);
    from_session(session, j);
    if (last.bind_sessions.empty()) return std::nullopt;
    const auto& b = last.bind_sessions[0];
    return Address{b.node, b.incarnation, {ActorKind::kNodeAgent, 0}};
  }
  template <class T>
  const T* sent() const {
    for (const auto& send : last.sends) {
      if (const auto* m = std::get_if<T>(send.message.get())) return m;
    }
    return nullptr;
  }
  template <class T>
  int count_sent() const {
    int n = 0;
    for (const auto& send : last.sends) n += std::holds_alternative<T>(*send.message) ? 1 : 0;
    return n;
  }
};

}  // namespace troupe::testing
