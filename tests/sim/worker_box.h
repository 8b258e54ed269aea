#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/worker/worker.h"
#include "tests/sim/bulk_network.h"
#include "tests/sim/control_network.h"
#include "tests/sim/fake_compute.h"
#include "tests/sim/sim_device.h"
#include "tests/sim/sim_disk.h"

namespace troupe::sim {

/// A worker's box: its disk, its state folder, and the process on it.
class WorkerBox {
 public:
  WorkerBox(World& world, int number) : world_(world), number_(number) {}

  void start();
  void kill();
  void hang();
  /// `clock_stood`: its clock did not go on meanwhile either.
  void go_on(bool clock_stood = false);
  bool alive() const { return life_ != nullptr; }
  bool hung() const { return alive() && life_->host.hung(); }
  /// While it is alive; null until its first turn.
  const WorkerMachine* machine() const;
  /// The same, while it is a member and has a lease.
  const NodeAgent* member() const;
  /// How the newest process ended, if it did so by itself.
  const std::optional<WorkerExit>& exit() const { return exit_; }
  SimHost& host() { return life_->host; }
  const SimHost& host() const { return life_->host; }

  void set_stuck(bool stuck);
  void set_slow(bool slow);
  void fail_device(int device);
  bool device_broken(int device) const;
  /// These two make it compute something else; true as long as it may.
  using Wrong = std::function<bool()>;
  Wrong break_kernels(int device);
  Wrong flip_bit();  ///< of what it holds; null: nothing
  DiskFaults disk;

  std::string describe() const;

 private:
  /// Of the process.
  struct Life {
    Life(WorkerBox& box, NodeAgentOptions options);
    ~Life();
    WorkerSetup setup(WorkerBox& box, NodeAgentOptions options);

    SimHost host;
    std::vector<std::unique_ptr<SimDevice>> devices;
    SimDisk disk;
    SimLink link;
    SimLane lane;
    FakeFactory factory;
    Worker worker;
  };
  std::vector<std::unique_ptr<SimDevice>> make_devices(SimHost& host) const;
  NodeAgentOptions options();
  void exited(const WorkerExit& exit);

  World& world_;
  const int number_;
  std::vector<std::unique_ptr<Life>> lives_;
  Life* life_ = nullptr;  // the one that is alive
  std::optional<WorkerExit> exit_;
  NodeId held_id_;  // in its state folder
};

}  // namespace troupe::sim
