#include "tests/sim/step_watch.h"

#include <cstdint>
#include <set>

#include "runtime/overloaded.h"
#include "tests/sim/world.h"

namespace troupe::sim {

void StepWatch::see(const Envelope& envelope) {
  std::visit(Overloaded{
                 [&](const StepPlan& m) { see_plan(envelope.to, m.body); },
                 [&](const StepFailed&) { ++world_.counters.steps_failed; },
                 [&](const Dispatch&) { ++world_.counters.dispatches; },
                 [&](const NotHere&) { ++world_.counters.not_here; },
                 [](const auto&) {},
             },
             *envelope.message);
}

void StepWatch::see_plan(const Address& shard, const StepPlanBody& plan) {
  StepId& newest = newest_[shard];
  if (plan.step <= newest) world_.broken("A step was planned twice.");
  newest = plan.step;
  ++world_.counters.steps;
  std::set<std::int32_t> blocks;
  std::size_t rows = 0, entries = 0;
  for (const StepSequence& sequence : plan.sequences) {
    rows += sequence.tokens.size();
    entries += sequence.block_table.size();
    blocks.insert(sequence.block_table.begin(), sequence.block_table.end());
  }
  if (blocks.size() != entries) world_.broken("Two sequences of a step share a block.");
  const Shape& shape = world_.shape();
  if (rows == 0 || rows > static_cast<std::size_t>(shape.max_batched) ||
      plan.sequences.size() > static_cast<std::size_t>(shape.max_seqs))
    world_.broken("A step is larger than it may be.");
}

}  // namespace troupe::sim
