#include "actors/layer_shard/layer_shard_actor.h"

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
  void on_peer_down(NodeId node) {
    LayerShardActions actions;
    machine_.on_peer_down(node, now(), actions);
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
};

}  // namespace

LayerShardActor spawn_layer_shard(caf::actor_system& system, Post& post, Device& device,
                                  LayerShardConfig config, std::shared_ptr<ShardCompute> compute) {
  auto peer_down = std::make_shared<std::function<void(NodeId)>>();
  const ActorHandle actor =
      spawn_actor(system, [&post, &device, config, compute, peer_down](const ActorHandle& handle) {
        auto body = std::make_unique<Body>(post, device, config, compute, handle);
        *peer_down = [raw = body.get()](NodeId node) { raw->on_peer_down(node); };
        return body;
      });
  return {actor, [actor, peer_down](NodeId node) {
            (void)actor.call([peer_down, node] { (*peer_down)(node); });
          }};
}

}  // namespace troupe
