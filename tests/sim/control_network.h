#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/control/control_lane.h"
#include "actors/control/head_link.h"
#include "actors/control/session_lane.h"
#include "tests/sim/sim_host.h"

namespace troupe::sim {

class SimLink;

/// "machine-7:6379" is where machine 7 listens.
HostPort listens_at(int machine);

/// Sessions between workers and heads: in order, each with two ends that learn of its end in their
/// own time. Two machines may have heads: number 0, and the one after the workers' (kStandbyHost).
class ControlNetwork final : public SessionLane {
 public:
  explicit ControlNetwork(World& world) : world_(world) {}

  // The head's end, or that of a standby.
  void serve(SimHost& head, ControlEvents& events);
  Status send(std::uint32_t session, const Envelope& envelope) override;
  void close(std::uint32_t session, const std::string& reason) override;
  /// Its process died: its kernel says so for it.
  void head_died(int machine);

  // The worker's end.
  std::uint32_t dial(SimLink& link, int machine);
  /// False when there is no such session (any more) at that end.
  bool to_head(std::uint32_t session, const Envelope& envelope);
  void close_by_worker(std::uint32_t session, const std::string& reason);
  void died(const SimLink& link);

  /// Somebody in between resets the machine's sessions.
  void reset(int machine);

  bool measures = false;                                ///< bytes, as the codec writes them
  std::uint64_t sent() const { return sent_; }          ///< by the head
  std::uint64_t sent_bytes() const { return sent_bytes_; }
  std::uint64_t received() const { return received_; }  ///< by the head

 private:
  struct Session {
    SimLink* link = nullptr;
    int machine = 0;  ///< of the link's end
    int place = 0;    ///< of the head's end
    std::uint32_t connection = 0;
    bool up_at_head = false;
    bool up_at_worker = false;
    bool heard = false;  ///< the worker heard of the head
  };
  struct Place {
    SimHost* host = nullptr;
    ControlEvents* events = nullptr;
  };
  void hear_old_tokens(const Place& place, std::uint32_t session, const Envelope& envelope);
  void answer(std::uint32_t session);
  void arrive(std::uint32_t session, const Envelope& envelope);
  void down_at_worker(std::uint32_t session, const std::string& reason);
  void down_at_head(std::uint32_t session, const std::string& reason);
  void forget_if_over(std::uint32_t session);

  World& world_;
  std::map<int, Place> places_;  // by machine; those that live
  std::uint32_t next_ = 1;
  std::map<std::uint32_t, Session> sessions_;
  /// What a machine has told of sequences.
  struct Told {
    const SimHost* head = nullptr;
    std::vector<MessagePtr> here, before;  ///< to this head; to the one before it
  };
  std::map<int, Told> told_;  // with Mutation::kOldTokens
  std::uint64_t sent_ = 0, received_ = 0, sent_bytes_ = 0;
};

/// One process's way to the head.
class SimLink final : public HeadLink {
 public:
  SimLink(SimHost& host, ControlNetwork& network, std::vector<int> places = {0})
      : host_(host), network_(network), places_(std::move(places)) {}

  void listen(Events events) override { events_ = std::move(events); }
  void seek_also(const std::string& address) override;
  void stay() override { stays_ = true; }
  void connect() override;
  Status send(const Envelope& envelope) override;
  void close() override;

  SimHost& host() const { return host_; }
  void arrive(std::uint32_t session, bool first, const Envelope& envelope);
  void down(std::uint32_t session, const std::string& reason);

 private:
  SimHost& host_;
  ControlNetwork& network_;
  std::vector<int> places_;  ///< machines at which a head may be
  std::size_t next_ = 0;     ///< behind the last
  bool stays_ = false;
  Events events_;
  std::optional<std::uint32_t> session_;
};

}  // namespace troupe::sim
