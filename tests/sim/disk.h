#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "actors/node_agent/node_agent.h"
#include "tests/sim/fake_model.h"
#include "tests/sim/loop.h"

namespace troupe::sim {

class Worker;

/// The weights that a worker's process has in memory, and how it gets more: piece by piece, at the
/// pace of its disk. What has been read stays when a load is superseded.
class Disk {
 public:
  using Work = NodeAgentActions::Work;
  using Shard = std::pair<std::int32_t, std::int32_t>;  ///< first and last layer

  explicit Disk(Worker& worker) : worker_(worker) {}

  /// Reads what a version's part lacks; the load before is superseded. `kept`: versions whose
  /// weights stay; everything else goes first. `done` is told, unless superseded.
  void load(const Work& work, const std::vector<Work>& kept, std::function<void(Status)> done);
  void cancel();
  /// Lets go of what none of these gives; the tier of the last is read.
  void retire(const std::vector<Work>& kept);
  /// The process ended.
  void clear();

  bool slow = false;
  int failing = 0;  ///< faults that make loads fail for a reason that passes
  int gone = 0;     ///< faults that make them fail for one that does not

  std::vector<LayerRange> held_shards() const;
  std::vector<HeldExperts> held_experts() const;

 private:
  void next(std::uint64_t load);

  Worker& worker_;
  std::set<Shard> shards_;
  std::set<ExpertKey> experts_;
  std::uint64_t load_ = 0;
  PlacementVersion version_;
  std::uint64_t total_ = 0;
  std::vector<ExpertKey> missing_experts_;
  std::vector<Shard> missing_shards_;
  std::function<void(Status)> done_;
};

}  // namespace troupe::sim
