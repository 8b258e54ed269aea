#include "actors/layer_shard/step_tables.h"

#include <string>
#include <utility>

namespace troupe {

Result<MessagePtr> StepTables::complete(const StepPlan& plan) {
  StepPlan whole = plan;
  for (StepSequence& sequence : whole.body.sequences) {
    Table& table = tables_[sequence.table_slot];
    if (sequence.table_base == 0) table = {sequence.id, {}, sequence.sampling.rules};
    if (table.sequence != sequence.id ||
        table.blocks.size() != static_cast<std::size_t>(sequence.table_base))
      return unavailable("A shard does not know the block table of sequence " +
                         std::to_string(sequence.id.value) + " that its step builds on.");
    table.blocks.insert(table.blocks.end(), sequence.block_table.begin(),
                        sequence.block_table.end());
    sequence.table_base = 0;
    sequence.block_table = table.blocks;
    sequence.sampling.rules = table.rules;
  }
  return message_of(std::move(whole));
}

}  // namespace troupe
