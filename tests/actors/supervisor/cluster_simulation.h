#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "actors/node_agent/node_agent.h"
#include "actors/supervisor/supervisor.h"

namespace troupe {

/// A Supervisor and NodeAgents in virtual time, over links that delay, hold and reset, in processes
/// that die, hang and start again. One thread, one seed: a failing seed replays.
class ClusterSimulation {
 public:
  ClusterSimulation(std::uint64_t seed, int workers, int min_devices);

  void start();
  void run_for(Duration duration);
  /// Runs until `done` holds; false when `limit` passes first or a rule is broken.
  bool run_until(const std::function<bool()>& done, Duration limit);

  // Faults. Each heals by itself after its duration.
  void kill_worker(int worker, Duration down);
  void hang_worker(int worker, Duration duration);
  void cut_worker(int worker, Duration duration);
  void cut_pair(int a, int b, Duration duration);
  void stick_device(int worker, Duration duration);
  void reset_session(int worker);
  void kill_head(Duration down);
  void random_fault();
  void stop_head();
  void leave(int worker);

  std::uint64_t pick(std::uint64_t low, std::uint64_t high) {
    return low + random_() % (high - low + 1);
  }
  Duration pick_ms(std::uint64_t low, std::uint64_t high) {
    return std::chrono::milliseconds(pick(low, high));
  }

  int workers() const { return static_cast<int>(workers_.size()); }
  bool head_up() const { return head_ != nullptr; }
  const Supervisor& head() const { return *head_; }
  const NodeAgent& agent(int worker) const { return *at(worker).agent; }
  const std::optional<NodeAgentActions::Exit>& exit_of(int worker) const { return at(worker).exit; }
  bool head_ended() const { return head_ended_; }
  bool all_serve() const;  ///< ready; all workers are members, and those it uses serve that version
  int times_ready() const { return times_ready_; }
  int lost_while_ready() const { return lost_while_ready_; }
  std::string describe() const;
  /// The first rule that was broken; empty: none.
  const std::string& violation() const { return violation_; }

  bool load_failures = false;  ///< now and then a load fails for a passing reason

 private:
  struct BulkEnd {
    NodeId peer;
    Incarnation incarnation;
    bool up = false;
  };
  struct Worker {
    int life = 0;
    bool alive = false;
    bool hung = false;
    bool cut = false;
    bool stuck = false;
    std::unique_ptr<NodeAgent> agent;
    std::optional<std::uint32_t> session;
    std::vector<std::function<void()>> inbox;  // while it hangs
    std::optional<TimePoint> wake;
    std::map<FabricToken, BulkEnd> bulk;
    NodeId held_id;  // on its disk
    std::string held_cluster;
    std::optional<NodeAgentActions::Exit> exit;
  };
  struct Link {
    int worker = 0;
    int worker_life = 0;
    bool up_at_head = false;
    bool up_at_worker = false;
    bool greeted = false;
    std::optional<Address> bound;
    TimePoint last[2]{};
    std::deque<std::function<void()>> held[2];  // by the cut; 0: to the head
  };
  struct Event {
    TimePoint at;
    std::uint64_t number;
    std::function<void()> run;
    bool operator<(const Event& other) const {  // the earliest is the greatest
      return std::tie(other.at, other.number) < std::tie(at, number);
    }
  };
  using AgentCall = std::function<void(NodeAgent&, NodeAgentActions&)>;
  using HeadCall = std::function<void(Supervisor&, SupervisorActions&)>;

  Worker& at(int worker) { return workers_[static_cast<std::size_t>(worker)]; }
  const Worker& at(int worker) const { return workers_[static_cast<std::size_t>(worker)]; }
  void after(Duration delay, std::function<void()> run);
  Duration delay();
  void at_worker(int worker, int life, std::function<void()> run);
  void transit(std::uint32_t session, int direction, std::function<void()> run);
  void start_head();
  void start_worker(int worker);
  void apply_head(SupervisorActions& actions);
  void apply_worker(int worker, NodeAgentActions& actions);
  void with_agent(int worker, const AgentCall& call);
  void with_head(const HeadCall& call);
  void wake_head();
  void wake_worker(int worker);
  void dial(int worker);
  void to_head(std::uint32_t session, MessagePtr message);
  void to_worker(std::uint32_t session, const Actions::Send& send);
  void down_at_worker(std::uint32_t session, const std::string& reason);
  void down_at_head(std::uint32_t session, const std::string& reason);
  void load(int worker, const NodeAgentActions::Work& work);
  void open_bulk(int worker, const Peer& peer, Duration deadline);
  void try_pair(const FabricToken& token);
  void close_bulk(int worker, const FabricToken& token, bool tell_own);
  void check_rules();
  void break_rule(const std::string& rule);

  std::mt19937_64 random_;
  TimePoint now_{};
  std::uint64_t numbers_ = 0;
  std::priority_queue<Event> events_;
  int min_devices_;

  std::unique_ptr<Supervisor> head_;
  int head_life_ = 0;
  bool head_wanted_ = true;
  bool head_ended_ = false;
  std::uint64_t kept_incarnation_ = 0;  // on the head's disk
  std::uint32_t kept_next_node_ = 1;    // there too
  std::optional<TimePoint> head_wake_;
  std::uint32_t next_session_ = 1;
  std::map<std::uint32_t, Link> links_;
  std::vector<Worker> workers_;
  std::set<std::pair<int, int>> pair_cuts_;
  std::uint64_t newest_incarnation_ = 0;
  int times_ready_ = 0;
  int lost_while_ready_ = 0;
  std::string violation_;
};

}  // namespace troupe
