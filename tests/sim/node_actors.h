#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/layer_shard/layer_shard.h"
#include "actors/node_agent/node_agent.h"
#include "actors/replica/replica.h"
#include "tests/sim/fake_compute.h"
#include "tests/sim/loop.h"

namespace troupe::sim {

class Worker;

/// A node's actors during one membership: the real Replicas and LayerShards with a made-up model,
/// and an expert group a device that answers from what the device hosts. What Serving is for real
/// ones: versions share what they have in common.
class NodeActors : public std::enable_shared_from_this<NodeActors> {
 public:
  using Work = NodeAgentActions::Work;
  struct Self {
    NodeId node;
    Incarnation incarnation;
    Address router;
  };
  NodeActors(Worker& worker, Self self) : worker_(worker), self_(self) {}

  /// That version is being read: its weights stay.
  void expect(const Work& work) { expected_ = work; }
  /// Its weights are here: what does not live yet is started, beside everything that does.
  Status adopt(const Work& work);
  void activate(PlacementVersion version, Task settled);
  void retire(PlacementVersion version);
  void drop_pending(const Work* next);
  void stop();

  void member_lost(NodeId node, Incarnation incarnation);
  void peer_down(NodeId node);
  void peer_up(NodeId node);
  void avoid(std::set<DeviceRef> devices);

  /// Of the versions whose weights are needed, oldest first.
  std::vector<Work> works() const;
  std::vector<ReplicaReport> reports() const;
  bool serves() const { return !replicas_.empty(); }
  /// Bytes of a device that its shards, their caches and its experts take; with those of a version
  /// that is to come beside them, if there is one.
  std::uint64_t claimed(std::uint32_t device, const Work* coming = nullptr) const;
  std::string describe() const;
  Incarnation incarnation() const { return self_.incarnation; }

  struct ReplicaActor {
    explicit ReplicaActor(const ReplicaConfig& c) : machine(c) {}
    Replica machine;
    Address self;
    std::map<NodeId, Incarnation> span;  ///< the nodes of its shards
    std::optional<TimePoint> wake;
    std::map<StepId, std::set<std::int32_t>> blocks;  ///< of steps in flight
    StepId newest;
    std::int32_t steps_most = 1;  ///< in flight at a time
    bool ended = false;
  };
  struct ShardActor {
    ShardActor(LayerShardConfig config, const FakeCompute::Options& options)
        : self(config.self), machine(std::move(config)), compute(options) {}
    Address self;
    LayerShard machine;
    FakeCompute compute;
    ShardPlacement placement;
    std::uint64_t cache_bytes = 0;
    std::map<NodeId, Incarnation> span;
    std::optional<TimePoint> wake;
    std::map<std::uint64_t, std::shared_ptr<Task>> unsettled;  ///< by number of the routes
    bool ended = false;
  };
  const std::map<std::uint32_t, std::shared_ptr<ReplicaActor>>& replicas() const {
    return replicas_;
  }
  const std::map<std::uint32_t, std::shared_ptr<ShardActor>>& shards() const { return shards_; }

 private:
  using Members = std::map<NodeId, Incarnation>;
  struct Version {
    Work work;
    Members members;
    std::shared_ptr<const ExpertRoutes> routes;
  };
  using ReplicaPtr = std::shared_ptr<ReplicaActor>;
  using ShardPtr = std::shared_ptr<ShardActor>;

  Address here(ActorKind kind, std::uint32_t index) const;
  Members span_of(const Version& version, std::uint32_t replica) const;
  void start_groups();
  void start_shard(const Version& version, const ShardPlacement& placement);
  void start_replica(const Version& version, const ReplicaPlacement& placement);
  void publish();
  void end_unless(const std::function<bool(std::uint32_t)>& keep_replica);
  void end(const ReplicaPtr& replica);
  void end(const ShardPtr& shard);

  // node_turns.cpp: their machines take turns, and what they ask for is carried out.
  using ShardTurn = std::function<void(LayerShard&, LayerShardActions&)>;
  using ReplicaTurn = std::function<void(Replica&, Actions&)>;
  void turn(const ShardPtr& shard, const ShardTurn& turn);
  void turn(const ReplicaPtr& replica, const ReplicaTurn& turn);
  void carry_out(const ShardPtr& shard, LayerShardActions& actions);
  void carry_out(const ReplicaPtr& replica, Actions& actions);
  using ShardWork = std::function<FakeCompute::Outcome(FakeCompute&, const std::set<ExpertKey>&)>;
  void compute(const ShardPtr& shard, StepId step, ShardWork work);
  void check_plan(ReplicaActor& replica, const StepPlan& plan);
  template <class Actor>
  void arrange_wake(const std::shared_ptr<Actor>& actor, const Actions& actions);
  void answer(std::uint32_t device, const Envelope& question);

  Worker& worker_;
  Self self_;
  std::map<PlacementVersion, Version> versions_;
  std::optional<Work> expected_;
  std::optional<PlacementVersion> active_;
  std::map<std::uint32_t, ReplicaPtr> replicas_;  // by id
  std::map<std::uint32_t, ShardPtr> shards_;      // by shard_index()
  std::set<NodeId> down_;
  std::set<DeviceRef> avoided_;
  bool groups_started_ = false;
};

}  // namespace troupe::sim
