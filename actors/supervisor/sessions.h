#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "actors/supervisor/event_log.h"
#include "actors/supervisor/supervisor_effects.h"

namespace troupe {

/// The sessions at the head, the log of cluster events, and the sessions that subscribed to it.
///
///     stranger ── Join ────────► member's      a stranger that says neither in time is closed
///         ├────── ClientHello ─► client's
///         └────── Follow ──────► standby's
class Sessions {
 public:
  enum class Kind : std::uint8_t { kStranger, kClient, kStandby, kMember };
  struct Session {
    std::string peer;         ///< where from, for people
    std::string certificate;  ///< the name of what it has shown
    TimePoint opened{};
    Kind kind = Kind::kStranger;
    NodeId member;  ///< of a member's session
    bool subscribed = false;
    bool closing = false;
  };

  /// The time on the clock of the wall at `started`.
  Sessions(TimePoint started, std::int64_t started_unix_ms) : log_(started, started_unix_ms) {}

  void open(SessionUp up, TimePoint now);
  /// The session has ended. The node that it spoke for, if it was a member's.
  std::optional<NodeId> end(std::uint32_t session);
  /// Null if there is none.
  const Session* find(std::uint32_t session) const;
  std::size_t size() const { return sessions_.size(); }

  void become_client(std::uint32_t session);
  void become_standby(std::uint32_t session);
  void become_member(std::uint32_t session, NodeId node);
  void subscribe(std::uint32_t session);

  /// Append it after all that is sent to that session.
  void close(std::uint32_t session, std::string reason, SupervisorEffects& effects);
  void close_all(const std::string& reason, SupervisorEffects& effects);
  void close_silent(TimePoint now, SupervisorEffects& effects);

  /// Puts an event into the log and tells subscribers, unless its kind floods them.
  void record(std::string kind, std::string text, TimePoint now, SupervisorEffects& effects);
  /// Tells of those that were left out.
  void sum_up_events(TimePoint now, SupervisorEffects& effects);
  const std::deque<ClusterEvent>& events() const { return log_.events(); }

  void arrange_wake(SupervisorEffects& effects) const;
  std::string violation() const;

 private:
  void tell(ClusterEvent event, SupervisorEffects& effects) const;

  EventLog log_;
  std::map<std::uint32_t, Session> sessions_;
};

}  // namespace troupe
