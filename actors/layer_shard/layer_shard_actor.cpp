#include "actors/layer_shard/layer_shard_actor.h"

#include <map>
#include <utility>

namespace troupe {
namespace {

class Body : public ActorBody {
 public:
  Body(Post& post, Device& device, LayerShardConfig config, std::shared_ptr<ShardCompute> compute,
       ActorHandle handle)
      : post_(post),
        device_(device),
        self_(config.self),
        handle_(std::move(handle)),
        compute_(std::move(compute)),
        machine_(std::move(config)) {}

  ~Body() override {
    // The cache and the buffers belong to the device's thread; jobs in its queue still use them.
    auto compute = std::make_shared<std::shared_ptr<ShardCompute>>(std::move(compute_));
    (void)device_.submit([compute] { compute->reset(); });
  }

  void on_message(const Envelope& envelope) override {
    LayerShardActions actions;
    machine_.on(envelope, now(), actions);
    carry_out(actions);
  }
  void on_wake() override {
    LayerShardActions actions;
    machine_.on_wake(now(), actions);
    carry_out(actions);
  }
  /// Runs a turn of the machine.
  template <class Work>
  void turn(const Work& work) {
    LayerShardActions actions;
    work(machine_, actions);
    carry_out(actions);
  }
  void on_routes(std::shared_ptr<const ExpertRoutes> routes, std::map<NodeId, Incarnation> members,
                 std::shared_ptr<void> settled) {
    LayerShardActions actions;
    const std::uint64_t number =
        machine_.on_routes(std::move(routes), std::move(members), now(), actions);
    settled_.emplace(number, std::move(settled));
    carry_out(actions);
  }

 private:
  void on_cut(StepId step, ExpertCut cut) {
    LayerShardActions actions;
    machine_.on_cut(step, std::move(cut), now(), actions);
    carry_out(actions);
  }
  void on_computed(StepId step, ComputeOutcome outcome) {
    LayerShardActions actions;
    machine_.on_computed(step, std::move(outcome), now(), actions);
    carry_out(actions);
  }

  void carry_out(LayerShardActions& actions) {
    for (auto& send : actions.sends) post_.send(self_, std::move(send));
    for (auto& begin : actions.begins) {
      const StepId step = std::get<StepPlan>(*begin.plan).body.step;
      compute(step, [begin = std::move(begin)](ShardCompute& c, const ShardCompute::OnCut& cut) {
        return c.begin(begin, cut);
      });
    }
    for (auto& resume : actions.resumes) {
      const StepId step = resume.step;
      compute(step, [resume = std::move(resume)](ShardCompute& c, const ShardCompute::OnCut& cut) {
        return c.resume(resume, cut);
      });
    }
    for (const StepId step : actions.releases)
      (void)device_.submit([compute = compute_, step] { compute->release(step); });
    if (actions.wake) handle_.wake_at(*actions.wake);
    for (const std::uint64_t number : actions.settled) settled_.erase(number);
  }

  /// Puts a job into the device's queue; its news come back as calls into this actor, which are
  /// dropped once the actor has ended.
  template <class Work>
  void compute(StepId step, Work work) {
    const Status queued =
        device_.submit([this, handle = handle_, compute = compute_, step, work = std::move(work)] {
          auto cut = [&](ExpertCut found) {
            auto shared = std::make_shared<ExpertCut>(std::move(found));
            (void)handle.call([this, step, shared] { on_cut(step, std::move(*shared)); });
          };
          auto outcome = std::make_shared<ComputeOutcome>(work(*compute, cut));
          (void)handle.call([this, step, outcome] { on_computed(step, std::move(*outcome)); });
        });
    if (!queued.ok()) {
      auto outcome = std::make_shared<ComputeOutcome>();
      outcome->error = queued.error();
      (void)handle_.call([this, step, outcome] { on_computed(step, std::move(*outcome)); });
    }
  }

  Post& post_;
  Device& device_;
  const Address self_;
  const ActorHandle handle_;
  std::shared_ptr<ShardCompute> compute_;
  LayerShard machine_;
  // By the number of the routes; whoever waits is told when its entry goes.
  std::map<std::uint64_t, std::shared_ptr<void>> settled_;
};

}  // namespace

LayerShardActor spawn_layer_shard(caf::actor_system& system, Post& post, Device& device,
                                  LayerShardConfig config, std::shared_ptr<ShardCompute> compute) {
  // The body is made inside of the actor, and lives as long as calls into it are run.
  auto body = std::make_shared<Body*>(nullptr);
  const ActorHandle actor =
      spawn_actor(system, [&post, &device, config, compute, body](const ActorHandle& handle) {
        auto made = std::make_unique<Body>(post, device, config, compute, handle);
        *body = made.get();
        return made;
      });
  LayerShardActor shard;
  shard.handle = actor;
  shard.peer_down = [actor, body](NodeId node) {
    (void)actor.call([body, node] {
      (*body)->turn([&](LayerShard& m, auto& actions) { m.on_peer_down(node, now(), actions); });
    });
  };
  shard.peer_up = [actor, body](NodeId node) {
    (void)actor.call([body, node] {
      (*body)->turn([&](LayerShard& m, auto& actions) { m.on_peer_up(node, now(), actions); });
    });
  };
  shard.avoid = [actor, body](std::set<DeviceRef> devices) {
    (void)actor.call([body, devices = std::move(devices)] {
      (*body)->turn([&](LayerShard& m, auto& actions) { m.on_avoid(devices, now(), actions); });
    });
  };
  shard.routes = [actor, body](std::shared_ptr<const ExpertRoutes> routes,
                               std::map<NodeId, Incarnation> members,
                               std::function<void()> settled) {
    // Told when the last one lets go of it: also when the actor has ended, since it asks no more.
    std::shared_ptr<void> told(nullptr, [settled = std::move(settled)](void*) {
      if (settled) settled();
    });
    (void)actor.call([body, routes = std::move(routes), members = std::move(members),
                      told = std::move(told)] { (*body)->on_routes(routes, members, told); });
  };
  return shard;
}

}  // namespace troupe
