#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/supervisor/turn.h"

namespace troupe {

/// The standby that follows this head, and who knows that it may take over. A part of the
/// Supervisor; actors/standby/README.md has the protocol.
///
///     nobody ── Follow ──► copying ── StandbyKept ──► ready
///        ▲ ◄── session ends ──┘                          │ session ends, or its copy breaks
///        └── more than half of the workers know ── leaving
///                       that it may not any more
///
/// While it is leaving, the Router holds back what it accepts: the standby may have become the head
/// without it. That ends, too, when the standby itself says that it will not, and this head ends
/// when the standby says that it has.
class StandbyLink {
 public:
  enum class State : std::uint8_t { kNobody, kCopying, kReady, kLeaving };
  State state() const { return state_; }
  /// As people are told it: ready only when it would be granted to take over at once.
  State shown() const;
  const std::string& address() const { return address_; }
  /// It hears this head.
  bool listens() const { return session_ != 0; }
  /// It has become the head: this one is none any more.
  bool deposed() const { return deposed_; }

  /// Whether it may follow; if so, the session is its from now on.
  Status follow(std::uint32_t session, const Follow& follow, std::uint32_t next_node,
                SupervisorTurn& turn);
  void followed(std::uint32_t session, const Followed& followed, SupervisorTurn& turn);
  /// It has all: once the next life would ask it first, it may take over.
  void copy_complete(std::uint32_t session, SupervisorTurn& turn) const;
  void kept(const StandbyKept& kept, SupervisorTurn& turn);
  void copy_broken(std::uint32_t session, const std::string& reason, SupervisorTurn& turn);
  void session_ended(std::uint32_t session, SupervisorTurn& turn);
  void answered(const StandbyAnswered& answer, SupervisorTurn& turn);
  void known(const Member& member, std::uint64_t number, SupervisorTurn& turn);
  void member_joined(const Member& member, SupervisorTurn& turn) const;
  /// The cluster ends: so does the standby, which takes nothing over.
  void stop(const std::string& reason, SupervisorTurn& turn);

  void on_wake(SupervisorTurn& turn);
  void end_turn(std::uint32_t next_node, SupervisorTurn& turn);
  void arrange_wake(SupervisorEffects& effects) const;
  std::string violation() const;

 private:
  using Lives = std::set<WorkerLife>;
  /// A Succession that the standby may have.
  struct Told {
    std::uint64_t number = 0;
    Lives members;
    bool complete = false;
  };
  bool follows(std::uint32_t session) const { return session_ != 0 && session_ == session; }
  void tell(const Lives& members, std::uint32_t next_node, SupervisorTurn& turn);
  void tell_workers(SupervisorTurn& turn) const;
  void leave(const std::string& why, SupervisorTurn& turn);
  bool most_know(const Told& told) const;
  void end_if_known(SupervisorTurn& turn);
  void gone(SupervisorTurn& turn);
  Successor successor() const;

  State state_ = State::kNobody;
  std::uint32_t session_ = 0;  ///< 0: it is not heard
  std::uint64_t standby_ = 0;
  std::string address_;
  TimePoint heard_{};
  bool stopping_ = false, deposed_ = false;

  std::uint64_t number_ = 0;  ///< of the newest Succession
  std::uint32_t next_node_ = 0;
  std::deque<Told> told_;  ///< the oldest is the one that it has acknowledged last
  // Of who may take over, as the workers hear it.
  std::uint64_t news_ = 0;
  Lives aware_;  ///< lives that know the newest
  TimePoint ask_at_{};
};

std::string_view to_string(StandbyLink::State state);

}  // namespace troupe
