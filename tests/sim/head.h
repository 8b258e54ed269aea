#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "actors/router/router.h"
#include "actors/supervisor/supervisor.h"

namespace troupe::sim {

class World;

/// The head's machine and the process on it: the real Supervisor and Router, and the programs that
/// ask for drains and rebalances. What HeadNode is for real ones.
class Head {
 public:
  explicit Head(World& world) : world_(world) {}

  void start();
  void kill();
  bool up() const { return supervisor_ != nullptr; }
  bool ended() const { return ended_; }  ///< in order
  int life() const { return life_; }
  Incarnation incarnation() const { return incarnation_; }
  const Supervisor& supervisor() const { return *supervisor_; }
  const Router& router() const { return *router_; }
  TimePoint clock() const;

  // The lane.
  void session_up(std::uint32_t session, const std::string& peer);
  void session_down(std::uint32_t session, const std::string& reason);
  void receive(const Envelope& envelope);

  // Programs.
  Result<std::uint64_t> submit(PreparedRequest request);
  void cancel(std::uint64_t request);
  void drain(NodeId node);
  void rebalance();
  void stop(const std::string& reason);

  std::uint64_t messages_sent() const { return messages_sent_; }
  std::uint64_t messages_received() const { return messages_received_; }
  /// Real time that the Supervisor's machine took.
  Duration busy() const { return busy_; }
  std::size_t operations() const { return operations_.size(); }  ///< that have not ended

 private:
  template <class Turn>
  void with_supervisor(const Turn& turn);
  template <class Turn>
  void with_router(const Turn& turn);
  void carry_out(SupervisorActions& actions);
  void carry_out(RouterActions& actions);
  void tell_router(SupervisorActions& actions);
  void to_session(std::uint32_t session, const Actions::Send& send);
  bool to_member(const Address& from, const Actions::Send& send);
  void arrange_wakes(const Actions& actions, std::optional<TimePoint>& wake, bool router);
  std::uint32_t open_program();

  World& world_;
  int life_ = 0;
  bool ended_ = false;
  Duration clock_offset_{};
  std::unique_ptr<Supervisor> supervisor_;
  std::unique_ptr<Router> router_;
  Incarnation incarnation_;
  std::optional<TimePoint> supervisor_wake_, router_wake_;
  struct Bound {
    std::uint32_t session = 0;
    Incarnation incarnation;
  };
  std::map<NodeId, Bound> bound_;
  std::map<std::uint32_t, NodeId> bound_sessions_;
  std::uint32_t next_program_ = 1u << 20;              // beside the workers' sessions
  std::map<std::uint64_t, std::uint32_t> operations_;  // by query: the program's session
  std::uint64_t next_query_ = 1;
  Duration busy_{};
  std::uint64_t messages_sent_ = 0;
  std::uint64_t messages_received_ = 0;
  // In the state folder.
  std::uint64_t kept_incarnation_ = 0;
  std::uint32_t kept_next_node_ = 1;
  // Of all lives.
  std::uint64_t newest_incarnation_ = 0;
};

}  // namespace troupe::sim
