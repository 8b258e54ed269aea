#include "tests/sim/step_watch.h"

#include <algorithm>

#include "runtime/overloaded.h"
#include "tests/sim/world.h"

namespace troupe::sim {

void StepWatch::see(const Envelope& envelope) {
  std::visit(Overloaded{
                 [&](const StepPlan& m) { see_plan(envelope.to, m.body); },
                 [&](const SequenceEvents& m) {
                   for (const SequenceEvent& event : m.events)
                     world_.counters.found += std::max(0, event.cached_tokens);
                 },
                 [&](const ForgetPrefixes&) { ++world_.counters.forgotten; },
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
  world_.counters.express += plan.express;
  std::size_t rows = 0;
  for (const StepSequence& sequence : plan.sequences) {
    rows += sequence.tokens.size();
    world_.counters.tables_appended += sequence.table_base > 0 && !sequence.block_table.empty();
  }
  const Shape& shape = world_.shape();
  if (rows == 0 || rows > static_cast<std::size_t>(shape.max_batched) ||
      plan.sequences.size() > static_cast<std::size_t>(shape.max_seqs))
    world_.broken("A step is larger than it may be.");
}

}  // namespace troupe::sim
