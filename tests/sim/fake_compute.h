#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "actors/worker/compute_factory.h"
#include "tests/sim/fake_model.h"
#include "tests/sim/sim_device.h"
#include "tests/sim/sim_host.h"

namespace troupe::sim {

/// The arithmetic of one shard. It keeps each row in the slot that the block table names, layer by
/// layer, and reads a row's whole context back from there, as attention does: a wrong table, a
/// block that two sequences share or a row that was never computed gives other tokens. A step must
/// not write to a block that a later step has used.
class FakeCompute final : public ShardCompute {
 public:
  FakeCompute(ShardSpec spec, SimHost& host);

  ComputeOutcome begin(const BeginStep& begin, const OnCut& on_cut) override;
  ComputeOutcome resume(const ResumeStep& resume, const OnCut& on_cut) override;
  void release(StepId step) override { runs_.erase(step); }

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
    std::vector<std::uint64_t> digests{};
  };
  ComputeOutcome advance(Run& run, const OnCut& on_cut);
  void attend(Run& run);
  static void note_canary(Run& run);
  bool use_experts(Run& run, const OnCut& on_cut);
  ComputeOutcome end(const Run& run) const;
  static ComputeOutcome error(const std::string& text);
  ComputeOutcome wrong(const std::string& text) const;
  const SimDevice& device() const { return static_cast<const SimDevice&>(*spec_.device); }
  std::uint64_t& slot(std::int32_t layer, const StepSequence& sequence, std::int32_t position);

  const ShardSpec spec_;
  SimHost& host_;
  std::vector<std::uint64_t> slots_;  // [layer, block, position]
  std::vector<StepId> writers_;       // the newest step that wrote to each block
  std::map<StepId, Run> runs_;
};

/// The arithmetic of an expert group.
class FakePass final : public ExpertPass {
 public:
  FakePass(const SimDevice& device, SimHost& host) : device_(device), host_(host) {}
  std::vector<PassAnswer> run(std::vector<Envelope> questions) override;

 private:
  const SimDevice& device_;
  SimHost& host_;
};

class FakeFactory final : public ComputeFactory {
 public:
  explicit FakeFactory(SimHost& host) : host_(host) {}
  Result<std::unique_ptr<ShardCompute>> make_shard(ShardSpec spec) override;
  Result<MadePass> make_pass(const PassSpec& spec) override;

 private:
  void count();

  SimHost& host_;
  std::shared_ptr<ExpertCounter> counter_;  // of the node, once it has a shard
};

}  // namespace troupe::sim
