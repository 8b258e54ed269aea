#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "runtime/result.h"
#include "transport/message.h"

namespace troupe {

/// The block tables of the sequences that run, and their rules, as the plans of a Replica have told
/// them so far: a sequence's first plan brings its whole table and its rules, later ones only what
/// was appended. One table a slot, which stays until the Replica gives the slot to another one: so
/// there are no more of them than sequences ran at once, and none outlives its shard.
class StepTables {
 public:
  /// The plan with whole tables, and rules. An error if it appends to a table that is not here as
  /// the Replica knows it: the step fails then, and the Replica tells all of its tables again.
  Result<MessagePtr> complete(const StepPlan& plan);

 private:
  struct Table {
    SequenceId sequence;
    std::vector<std::int32_t> blocks;
    std::shared_ptr<const TokenRules> rules;
  };
  std::map<std::int32_t, Table> tables_;  ///< by slot
};

}  // namespace troupe
