#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/layer_shard/layer_shard.h"
#include "tests/sim/fake_model.h"

namespace troupe::sim {

/// The arithmetic of one shard: what ShardCompute is for real ones. It keeps each row in the slot
/// that the block table names, layer by layer, and reads a row's whole context back from there, as
/// attention does: a wrong table, a block that two sequences share or a row that was never computed
/// gives other tokens.
class FakeCompute {
 public:
  struct Options {
    std::int32_t first_layer = 0;
    std::int32_t last_layer = 0;
    std::int32_t blocks = 0;
    std::int32_t block_size = 0;
  };
  explicit FakeCompute(const Options& options);

  struct Outcome {
    ComputeOutcome computed;
    std::optional<ExpertCut> cut;  ///< comes before `computed`
    std::string wrong;             ///< what the machine must never have done
  };
  /// `held`: the experts of this device now.
  Outcome begin(const LayerShardActions::Begin& begin, const std::set<ExpertKey>& held);
  Outcome resume(const LayerShardActions::Resume& resume, const std::set<ExpertKey>& held);
  void release(StepId step) { runs_.erase(step); }

 private:
  struct Row {
    std::uint64_t value = 0;
    std::array<std::int32_t, kTopK> experts{};
    std::array<std::uint64_t, kTopK> outputs{};
    std::array<bool, kTopK> computed{};
  };
  struct Run {
    MessagePtr plan;
    std::vector<Row> rows;
    std::int32_t layer = 0;
  };
  Outcome advance(Run& run, const std::set<ExpertKey>& held);
  void attend(Run& run);
  bool use_experts(Run& run, const std::set<ExpertKey>& held, Outcome& outcome);
  void end(const Run& run, Outcome& outcome) const;
  std::uint64_t& slot(std::int32_t layer, const StepSequence& sequence, std::int32_t position);

  Options options_;
  std::vector<std::uint64_t> slots_;  // [layer, block, position]
  std::map<StepId, Run> runs_;
};

/// What an expert group answers: wire rows in the order of the pairs.
Payload compute_experts(const Dispatch& dispatch);

}  // namespace troupe::sim
