#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "actors/router/messages.h"
#include "actors/supervisor/status.h"
#include "actors/supervisor/supervisor.h"
#include "tests/actors/effects.h"

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
  o.compute = [](Numerics, int, std::int32_t) {
    return ComputeCosts{128, 2, [](std::int32_t, std::int32_t) { return 0u; },
                        [](std::int64_t) { return 0u; }};
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
  j.protocol = kProtocol;
  j.version = "0.1.0";
  j.host = "here";
  j.pid = pid;
  j.numerics = {Numerics::kReference, Numerics::kBf16};
  j.checkpoint_hash = "abc";
  j.devices = {{"cpu", 64 * kMiB, 2}};
  j.fabric_address = "127.0.0.1:1";
  return j;
}

/// A Supervisor and the sessions at its door. After each turn its invariants must hold.
struct Head {
  Supervisor s;
  TimePoint now = TimePoint{} + 1h;
  SupervisorEffects last;  ///< of the newest turn

  explicit Head(SupervisorOptions o = options()) : s(std::move(o)) {}

  /// What replicas give when they are asked for the canary; none: they do not answer.
  std::optional<KnownCanary> canary = KnownCanary{{7}, {1, 2, 3, 4}};

  template <class T>
  void tell(T local) {
    last = {};
    turn(s, std::move(local), now, last);
    check();
    go_on();
  }
  void up(std::uint32_t session) { tell(SessionUp{session, "peer"}); }
  void down(std::uint32_t session) { tell(SessionDown{session, "reset"}); }
  template <class T>
  void from(const Address& address, T message) {
    last = {};
    turn(s, Envelope{address, s.address().address, message_of(std::move(message))}, now, last);
    check();
    go_on();
  }
  template <class T>
  void from_session(std::uint32_t session, T message) {
    from(Address{kHeadNode, s.options().incarnation, {ActorKind::kClient, session}},
         std::move(message));
  }
  /// Time passes for a head that is woken as it asked.
  void pass(Duration d) {
    for (const TimePoint end = now + d; now < end;)
      wait(std::min<Duration>(limits::kSleepLook, end - now));
  }
  void wait(Duration d) {
    now += d;
    last = {};
    wake(s, now, last);
    check();
    go_on();
  }
  /// Has an event recorded: a worker that does not join says why.
  void log(const std::string& text) {
    constexpr std::uint32_t kSession = 1000;
    up(kSession);
    from_session(kSession, Leave{text});
    const SupervisorEffects kept = last;
    down(kSession);
    last = kept;
  }
  /// The address that a worker got, or none if it was refused.
  std::optional<Address> join(std::uint32_t session, const Join& j) {
    up(session);
    from_session(session, j);
    const auto bound = all<BindSession>(last);
    if (bound.empty()) return std::nullopt;
    return Address{bound[0].node, bound[0].incarnation, {ActorKind::kNodeAgent, 0}};
  }
  /// Messages of a kind, whether they go to members or to sessions.
  template <class T>
  std::vector<T> sends() const {
    std::vector<T> found;
    for (const auto& effect : last.list()) {
      const auto* send = std::get_if<Send>(&effect);
      const auto* to_session = std::get_if<SendToSession>(&effect);
      if (!send && !to_session) continue;
      const MessagePtr& message = send ? send->message : to_session->message;
      if (const auto* m = std::get_if<T>(message.get())) found.push_back(*m);
    }
    return found;
  }
  template <class T>
  std::optional<T> sent() const {
    const auto found = sends<T>();
    return found.empty() ? std::nullopt : std::optional(found[0]);
  }
  template <class T>
  int count_sent() const {
    return static_cast<int>(sends<T>().size());
  }
  /// The newest of those that the Router hears in this turn.
  template <class T>
  std::optional<T> router_hears() const {
    const auto found = told<RouterInbox, T>(last);
    return found.empty() ? std::nullopt : std::optional(found.back());
  }
  std::optional<std::uint32_t> kept_next_node() const {
    const auto kept = all<KeepNextNode>(last);
    return kept.empty() ? std::nullopt : std::optional(kept.back().next_node);
  }
  bool may_end() const { return !all<HeadMayEnd>(last).empty(); }

 private:
  /// Replicas answer what they are asked in that turn. `last` has the effects of all these turns.
  void go_on() {
    if (!canary) return;
    for (const auto& send : all<Send>(last)) {
      const auto* run = std::get_if<RunCanary>(send.message.get());
      if (!run || !answered_.insert(run->run).second) continue;
      const CanaryResult result{run->replica, run->run, canary->tokens, canary->digests, {}};
      turn(s, Envelope{send.to, s.address().address, message_of(result)}, now, last);
      check();
    }
  }
  std::set<std::uint64_t> answered_;  ///< runs of the canary
  void check() const {
    const std::string violation = s.violation();
    CHECK_MESSAGE(violation.empty(), violation);
  }
};

}  // namespace troupe::testing
