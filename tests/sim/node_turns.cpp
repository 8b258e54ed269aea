#include "actors/company/post.h"
#include "runtime/limits.h"
#include "tests/sim/node_actors.h"
#include "tests/sim/world.h"

namespace troupe::sim {

using namespace std::chrono_literals;

namespace {

constexpr Duration kJobTime = 60us;     ///< any job on a device
constexpr Duration kReportTime = 20us;  ///< from the device's thread to the actor

}  // namespace

void NodeActors::turn(const ShardPtr& shard, const ShardTurn& turn) {
  if (shard->ended) return;
  LayerShardActions actions;
  turn(shard->machine, actions);
  if (shard->machine.steps() > limits::kStepsInFlightMax)
    worker_.world().broken("A shard knows of more steps than it may.");
  carry_out(shard, actions);
}

void NodeActors::turn(const ReplicaPtr& replica, const ReplicaTurn& turn) {
  if (replica->ended) return;
  Actions actions;
  turn(replica->machine, actions);
  carry_out(replica, actions);
}

template <class Actor>
void NodeActors::arrange_wake(const std::shared_ptr<Actor>& actor, const Actions& actions) {
  if (!actions.wake || (actor->wake && *actor->wake <= *actions.wake)) return;
  actor->wake = actions.wake;
  worker_.later(*actions.wake - worker_.clock(), [weak = weak_from_this(), actor] {
    const auto self = weak.lock();
    if (!self || !actor->wake || self->worker_.clock() < *actor->wake) return;
    actor->wake.reset();
    self->turn(actor,
               [&](auto& machine, auto& out) { machine.on_wake(self->worker_.clock(), out); });
  });
}

// --- Replicas -----------------------------------------------------------------------------------

void NodeActors::carry_out(const ReplicaPtr& replica, Actions& actions) {
  for (const auto& send : actions.sends) {
    if (const auto* plan = std::get_if<StepPlan>(send.message.get())) check_plan(*replica, *plan);
    if (const auto* abort = std::get_if<StepAbort>(send.message.get()))
      replica->blocks.erase(abort->step);
    worker_.send({replica->self, send.to, send.message});
  }
  arrange_wake(replica, actions);
}

/// A step is planned once, within its bounds, and no two in flight write to the same block.
void NodeActors::check_plan(ReplicaActor& replica, const StepPlan& plan) {
  World& world = worker_.world();
  if (replica.blocks.contains(plan.body.step)) return;  // the same for the next shard
  if (plan.body.step <= replica.newest) world.broken("A step was planned twice.");
  replica.newest = plan.body.step;
  ++world.counters.steps;
  std::set<std::int32_t> blocks;
  std::size_t rows = 0, entries = 0;
  for (const StepSequence& sequence : plan.body.sequences) {
    rows += sequence.tokens.size();
    entries += sequence.block_table.size();
    blocks.insert(sequence.block_table.begin(), sequence.block_table.end());
  }
  if (blocks.size() != entries) world.broken("Two sequences of a step share a block.");
  for (const auto& [step, others] : replica.blocks)
    for (const std::int32_t block : others)
      if (blocks.contains(block)) world.broken("Two steps in flight share a block.");
  const Shape& shape = world.shape();
  if (rows == 0 || rows > static_cast<std::size_t>(shape.max_batched) ||
      plan.body.sequences.size() > static_cast<std::size_t>(shape.max_seqs))
    world.broken("A step is larger than it may be.");
  replica.blocks[plan.body.step] = std::move(blocks);
  if (replica.blocks.size() > static_cast<std::size_t>(replica.steps_most))
    world.broken("More steps are in flight than the pipeline has stages.");
}

// --- Shards -------------------------------------------------------------------------------------

void NodeActors::carry_out(const ShardPtr& shard, LayerShardActions& actions) {
  for (const auto& send : actions.sends) {
    if (std::holds_alternative<Dispatch>(*send.message)) ++worker_.world().counters.dispatches;
    worker_.send({shard->self, send.to, send.message});
  }
  for (const auto& begin : actions.begins)
    compute(shard, std::get<StepPlan>(*begin.plan).body.step,
            [begin](FakeCompute& c, const auto& held) { return c.begin(begin, held); });
  for (const auto& resume : actions.resumes)
    compute(shard, resume.step,
            [resume](FakeCompute& c, const auto& held) { return c.resume(resume, held); });
  for (const StepId step : actions.releases)
    worker_.compute(shard->placement.device.index, {},
                    [shard, step] { shard->compute.release(step); });
  arrange_wake(shard, actions);
  for (const std::uint64_t number : actions.settled) shard->unsettled.erase(number);
}

/// Puts a job into the device's queue; its news come back later, unless the actor has ended.
void NodeActors::compute(const ShardPtr& shard, StepId step, ShardWork work) {
  const std::uint32_t device = shard->placement.device.index;
  worker_.compute(
      device, kJobTime, [weak = weak_from_this(), shard, step, device, work = std::move(work)] {
        const auto self = weak.lock();
        if (!self || shard->ended) return;
        const Worker::Device& d = self->worker_.devices()[device];
        FakeCompute::Outcome outcome;
        if (d.failed.empty())
          outcome = work(shard->compute, d.hosted);
        else
          outcome.computed.error = unavailable("The device has failed: " + d.failed + ".");
        if (!outcome.wrong.empty()) self->worker_.world().broken(outcome.wrong);
        const auto report = std::make_shared<FakeCompute::Outcome>(std::move(outcome));
        self->worker_.later(kReportTime, [weak, shard, step, report] {
          const auto still = weak.lock();
          if (!still) return;
          const TimePoint now = still->worker_.clock();
          if (report->cut)
            still->turn(shard, [&](LayerShard& machine, LayerShardActions& out) {
              machine.on_cut(step, std::move(*report->cut), now, out);
            });
          still->turn(shard, [&](LayerShard& machine, LayerShardActions& out) {
            machine.on_computed(step, std::move(report->computed), now, out);
          });
        });
      });
}

// --- Expert groups ------------------------------------------------------------------------------

void NodeActors::answer(std::uint32_t device, const Envelope& question) {
  const Address self = here(ActorKind::kExpertGroup, device);
  if (const auto* lost = std::get_if<Undeliverable>(question.message.get())) {
    // Whoever waits for an answer that could not travel must not wait on.
    if (lost->kind == Message(ExpertOutput{}).index())
      worker_.send({self, lost->to, message_of(NotHere{lost->reference, {}, "undeliverable"})});
    return;
  }
  if (!std::holds_alternative<Dispatch>(*question.message)) return;
  worker_.compute(device, kJobTime, [weak = weak_from_this(), self, device, question] {
    const auto group = weak.lock();
    if (!group) return;
    Worker& worker = group->worker_;
    const auto& dispatch = std::get<Dispatch>(*question.message);
    const Worker::Device& d = worker.devices()[device];
    std::vector<std::int32_t> absent;
    for (const ExpertPair& pair : dispatch.pairs)
      if (!d.hosted.contains({dispatch.layer, pair.expert})) absent.push_back(pair.expert);
    MessagePtr answer;
    if (!d.failed.empty() || !absent.empty()) {
      ++worker.world().counters.not_here;
      answer = message_of(NotHere{dispatch.call, absent, "not here"});
    } else {
      answer =
          message_of(ExpertOutput{dispatch.call, static_cast<std::uint32_t>(dispatch.pairs.size()),
                                  compute_experts(dispatch)});
    }
    worker.send({self, question.from, answer});
  });
}

}  // namespace troupe::sim
