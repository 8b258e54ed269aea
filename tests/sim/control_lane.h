#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "transport/message.h"

namespace troupe::sim {

class World;

/// Sessions between workers and the head: in order, each with two ends that learn of its end in
/// their own time.
class ControlLane {
 public:
  explicit ControlLane(World& world) : world_(world) {}

  /// A worker seeks the head; it hears of the outcome. Returns the session's number.
  std::uint32_t dial(int worker);
  /// False when there is no such session (any more) at the sender's end.
  bool to_head(std::uint32_t session, const Envelope& envelope);
  bool to_worker(std::uint32_t session, const Envelope& envelope);
  void close_by_worker(std::uint32_t session);
  void close_by_head(std::uint32_t session, const std::string& reason);
  void bind(std::uint32_t session, const Address& agent) { sessions_.at(session).bound = agent; }
  /// A process ended: its kernel says so for it.
  void worker_died(int worker);
  void head_died();
  /// Somebody in between resets the worker's connection.
  void reset(int worker);

 private:
  struct Session {
    int worker = 0;
    int life = 0;
    std::uint32_t connection = 0;
    bool up_at_head = false;
    bool up_at_worker = false;
    bool heard = false;  ///< the worker heard of the head
    std::optional<Address> bound;
  };
  void answer(std::uint32_t session);
  void down_at_worker(std::uint32_t session, const std::string& reason);
  void down_at_head(std::uint32_t session, const std::string& reason);
  void forget_if_over(std::uint32_t session);

  World& world_;
  std::uint32_t next_ = 1;
  std::map<std::uint32_t, Session> sessions_;
};

}  // namespace troupe::sim
