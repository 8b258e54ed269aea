#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/bulk_network.h"
#include "tests/sim/clients.h"
#include "tests/sim/control_network.h"
#include "tests/sim/heads.h"
#include "tests/sim/history.h"
#include "tests/sim/loop.h"
#include "tests/sim/network.h"
#include "tests/sim/step_watch.h"
#include "tests/sim/worker_box.h"

namespace troupe::sim {

/// What happened in a history, so that a test can see that it tried what it claims to try.
struct Counters {
  std::uint64_t requests = 0, finished = 0, tokens = 0;
  std::uint64_t steps = 0, steps_failed = 0, dispatches = 0, not_here = 0;
  std::uint64_t replays = 0, versions = 0, recoveries = 0, moves = 0, lost = 0;
  std::uint64_t found = 0;     ///< tokens whose rows replicas had kept
  std::uint64_t forgotten = 0;  ///< times that a replica was told to find nothing again
  std::uint64_t tables_appended = 0;  ///< that were told as differences
  std::uint64_t express = 0;  ///< steps that passed others
  std::uint64_t given_up = 0;  ///< requests that kill their workers
  std::uint64_t resumed = 0;   ///< that outlived their head
  std::uint64_t refused = 0;   ///< requests whose acceptance a disk did not take
  std::uint64_t takeovers = 0;  ///< times that clients went to another head
  std::uint64_t lives_kept = 0;  ///< of workers, that went on under another head
  std::uint64_t deaths = 0;  ///< of heads and standbys
  std::uint64_t events = 0;
  Duration longest_wait{};  ///< as check_rules() counts it
  void add(const Counters& other);
};

/// A whole cluster: one head or two, its workers, what lies between them, and clients.
class World {
 public:
  explicit World(const History& history);
  ~World();
  World(const World&) = delete;

  const Shape& shape() const { return history_.shape; }
  Mutation mutation() const { return history_.mutation; }
  bool has_poison() const { return sim::has_poison(history_); }
  WorkerBox& worker(int number) { return *workers_[static_cast<std::size_t>(number)]; }
  const WorkerBox& worker(int number) const { return *workers_[static_cast<std::size_t>(number)]; }
  int workers() const { return static_cast<int>(workers_.size()); }

  void begin();  ///< processes, faults and requests take their times
  /// Runs until `done` holds; false when `limit` passes first or a rule is broken.
  bool run_until(const std::function<bool()>& done, Duration limit);
  void run_for(Duration time) {
    (void)run_until([] { return false; }, time);
  }

  void strike(const Fault& fault);
  void heal(const Fault& fault);
  /// A worker's process ended by itself.
  void exited(int worker, const WorkerExit& exit);
  /// A request killed the process on that machine of the network.
  void poisoned(int machine);

  /// Everyone is a member, and those that the version in force uses serve it.
  bool all_serve() const;
  std::string describe() const;

  void broken(const std::string& rule);
  /// The first rule that was broken; empty: none.
  const std::string& violation() const { return violation_; }

  /// Whether somebody computes something else, or has lately: what is asked meanwhile may get
  /// other tokens.
  bool may_be_wrong() const { return !wrong_.empty() || loop.now() < wrong_until_; }
  /// Looks who still does; nobody may for long.
  void check_wrong();

  // What the rule about long waits goes by.
  void note_change() { changed_at_ = loop.now(); }
  TimePoint changed_at() const { return changed_at_; }  ///< newest fault, end of one, start
  int faults_now() const { return faults_now_; }        ///< that will heal soon and have not
  const std::vector<FaultKind>& struck() const { return struck_; }

 private:
  std::vector<std::unique_ptr<WorkerBox>> workers_;

 public:
  Loop loop;
  Network network;
  ControlNetwork control;
  BulkNetwork bulk;
  Heads head;
  Clients clients;
  StepWatch steps;
  Counters counters;
  std::set<int> corrupt_answers;  ///< machines whose experts answer with a row too many
  std::set<int> bad;              ///< workers whose weights or kernels were not what they must be
  std::uint64_t lost_seen = 0;  ///< members that were lost, as far as their reasons were checked
  int hot_experts = 0;          ///< faults that make some experts' load high
  bool stopping = false;  ///< processes may end and stay so
  bool checks = true;     ///< the rules, after every event

 private:
  void cut(const Fault& fault, bool heals);
  void cut_heads(const Fault& fault, bool heals);
  void slow(const Fault& fault, bool heals);
  void flap(const Fault& fault, TimePoint end);
  void strike_disk(const Fault& fault, int change);
  void strike_numbers(const Fault& fault);
  void wake_all();

  History history_;
  std::string violation_;
  struct Wrong {
    TimePoint since;
    WorkerBox::Wrong still;
  };
  std::vector<Wrong> wrong_;
  TimePoint wrong_until_{};
  TimePoint changed_at_{};
  int faults_now_ = 0;
  std::vector<FaultKind> struck_;
};

}  // namespace troupe::sim
