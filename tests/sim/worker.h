#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/node_agent/node_agent.h"
#include "tests/sim/disk.h"
#include "tests/sim/loop.h"
#include "tests/sim/node_actors.h"

namespace troupe::sim {

class World;

/// A worker's machine and the process on it: the real NodeAgent and, under it, the actors of its
/// memberships. What WorkerNode is for real ones.
class Worker {
 public:
  struct Device {
    std::uint64_t memory = 0;
    std::string failed;
    std::set<ExpertKey> hosted;  ///< published to its expert group
    TimePoint free_at{};
    std::deque<Task> waiting;  ///< while it is stuck
  };
  using Exit = NodeAgentActions::Exit;

  Worker(World& world, int index);

  // The process.
  void start();
  void kill();
  void hang();
  void go_on();
  bool alive() const { return alive_; }
  bool hung() const { return hung_; }
  int life() const { return life_; }
  const std::optional<Exit>& exit() const { return exit_; }
  const NodeAgent& agent() const { return *agent_; }
  const NodeActors* actors() const { return actors_.get(); }
  /// Of the head that its membership is of.
  Incarnation head_life() const { return head_; }
  void leave(const std::string& reason);
  /// Runs in that life of the process: at once, or when it goes on if it hangs; never if it ended.
  void run(int life, Task task);
  void later(Duration delay, Task task);
  /// The process's own monotonic clock; no two machines' agree.
  TimePoint clock() const;

  // The devices.
  std::vector<Device>& devices() { return devices_; }
  const std::vector<Device>& devices() const { return devices_; }
  void compute(std::uint32_t device, Duration work, Task job);
  void set_stuck(bool stuck);
  void set_slow(bool slow) { slow_ = slow; }
  void fail_device(std::uint32_t device);
  Disk& disk() { return disk_; }

  // The post office. False: it cannot be delivered.
  void send(const Envelope& envelope);
  void attach(const Address& address, std::function<void(const Envelope&)> actor) {
    mailboxes_[address] = std::move(actor);
  }
  void detach(const Address& address) { mailboxes_.erase(address); }

  // The lanes.
  void head_says(std::uint32_t session, const Envelope& envelope, bool first);
  void session_down(std::uint32_t session, const std::string& reason);
  void peer_up(const Peer& peer);
  void peer_down(const Peer& peer, const std::string& reason);
  void peer_says(const Peer& peer, const Envelope& envelope);

  using Turn = std::function<void(NodeAgent&, NodeAgentActions&)>;
  void with_agent(const Turn& turn);
  World& world() { return world_; }
  std::string describe() const;

 private:
  NodeProgress progress();
  std::vector<ExpertCounts::Layer> take_counts();
  void carry_out(NodeAgentActions& actions);
  void carry_out_session(const NodeAgentActions& actions);
  void carry_out_peers(const NodeAgentActions& actions);
  void begin_load(const NodeAgentActions::Work& work);
  void finish_load(const NodeAgentActions::Work& work, const Status& read);
  void wake();
  bool route(const Envelope& envelope);
  void deliver(const Envelope& envelope);
  bool deliver_here(const Envelope& envelope);

  World& world_;
  const int index_;
  Duration clock_offset_{};
  int life_ = 0;
  bool alive_ = false;
  bool hung_ = false;
  bool stuck_ = false;
  bool slow_ = false;
  std::vector<Task> inbox_;  // while it hangs
  std::unique_ptr<NodeAgent> agent_;
  std::optional<TimePoint> wake_;
  TimePoint next_second_{};
  std::optional<Exit> exit_;
  std::optional<std::uint32_t> session_;
  Incarnation head_;  // the life of it that the session leads to
  struct Reached {
    Incarnation incarnation;
    FabricToken token;
  };
  std::map<NodeId, Reached> peers_;
  std::set<FabricToken> sought_;  ///< of connections that were not given up: no news of others
  std::map<Address, std::function<void(const Envelope&)>> mailboxes_;
  std::shared_ptr<NodeActors> actors_;
  std::set<DeviceRef> avoided_;
  std::vector<Device> devices_;
  Disk disk_;
  NodeId held_id_;  // in its state folder
  std::string held_cluster_;
};

}  // namespace troupe::sim
