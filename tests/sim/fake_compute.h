#pragma once

#include <array>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "actors/worker/compute_factory.h"
#include "tests/sim/fake_model.h"
#include "tests/sim/sim_device.h"
#include "tests/sim/sim_host.h"

namespace troupe::sim {

/// What the experts of a device make of rows: numbers of kRowBytes.
class FakeExperts final : public ExpertArithmetic {
 public:
  explicit FakeExperts(const SimDevice& device) : device_(device) {}
  std::size_t run(const ExpertSet& experts, const ExpertPairs& pairs) override;

 private:
  const SimDevice& device_;
};

/// The arithmetic of one shard. It keeps each row in the slot that the block table names, layer by
/// layer, and reads a row's whole context back from there, as attention does: a wrong table, a
/// block that two sequences write to, one that is shared for other content, or a row that was never
/// computed gives other tokens. A step must not write to a block that a later step has used, nor
/// read one that a later step has written.
class FakeCompute final : public ShardCompute {
 public:
  FakeCompute(ShardSpec spec, SimHost& host, std::shared_ptr<FakeExperts> experts);

  void use(std::shared_ptr<Collective> ranks) override { ranks_ = std::move(ranks); }
  void deal(std::shared_ptr<const ExpertRanks>) override {}
  bool hears_ranks(TimePoint now) const override;
  void begin(const BeginStep& begin, const std::shared_ptr<ShardNews>& news) override;
  void resume(ResumeStep resume, const std::shared_ptr<ShardNews>& news) override;
  void release(StepId step) override;
  void give_up(StepId step) override;
  void end() override;

 private:
  struct Row {
    std::uint64_t value = 0;
    std::array<std::int32_t, kTopK> experts{};
    std::array<std::uint64_t, kTopK> outputs{};
    std::array<bool, kTopK> computed{};
  };
  /// The newest steps that used a block.
  struct Users {
    StepId reader, writer;
  };
  struct Run final : ExpertWork {
    explicit Run(FakeCompute& c) : compute(c) { arithmetic = c.experts_.get(); }
    void computed(const Status& done) override;
    void go_on() override;

    FakeCompute& compute;
    StepId id;
    MessagePtr plan;
    std::weak_ptr<ShardNews> news;
    std::vector<Row> rows;
    /// Where it goes on. After kSum and kRows other ranks have been heard.
    enum class At { kAttention, kSum, kExperts, kRows } at = At::kAttention;
    std::int32_t layer = 0;
    std::uint32_t exchange = 0;
    TimePoint exchanging_since = TimePoint::max();
    bool given_up = false;
    std::vector<Payload> parts;  ///< of other ranks
    std::vector<std::uint64_t> digests;
    bool missing = false;  ///< some experts are elsewhere
    bool goes_on = false;
    // What waits in the device's pool.
    std::vector<const std::byte*> pair_rows;
    std::vector<std::int32_t> pair_experts;
    std::vector<std::byte*> pair_outputs;
  };
  void tell(const Run& run, ComputeOutcome outcome) const;
  void advance(Run& run);
  bool part(Run& run);
  bool end_attention(Run& run);
  bool end_experts(Run& run);
  bool end_layer(Run& run);
  /// Exchanges of tensor-parallel ranks. Rows are numbers here: a rank's part of one is what the
  /// others' parts lack of it.
  using RowsFor = std::function<std::vector<std::uint64_t>(std::uint32_t rank)>;
  using CountFrom = std::function<std::size_t(std::uint32_t rank)>;
  bool exchange(Run& run, const RowsFor& to, const CountFrom& rows);
  void heard(StepId step, Result<std::vector<Payload>> parts);
  bool stop_waiting(Run& run);
  std::size_t first_row(const Run& run, std::uint32_t rank) const;
  bool own_blocks(const StepPlanBody& plan) const;
  void attend(Run& run);
  static void note_canary(Run& run);
  void use_experts(Run& run);
  ComputeOutcome end(const Run& run) const;
  static ComputeOutcome error(const std::string& text);
  ComputeOutcome wrong(const std::string& text) const;
  SimDevice& device() const { return static_cast<SimDevice&>(*spec_.device); }
  std::uint64_t& slot(std::int32_t layer, const StepSequence& sequence, std::int32_t position);

  const ShardSpec spec_;
  SimHost& host_;
  std::vector<std::uint64_t> slots_;  // [layer, block, position]
  std::vector<Users> users_;          // of each block
  std::map<StepId, std::unique_ptr<Run>> runs_;
  const std::shared_ptr<FakeExperts> experts_;
  std::shared_ptr<Collective> ranks_;  ///< null: no others
};

/// The arithmetic of an expert group.
class FakePass final : public ExpertPass {
 public:
  FakePass(SimDevice& device, SimHost& host, std::shared_ptr<FakeExperts> experts)
      : device_(device), host_(host), experts_(std::move(experts)) {}
  void run(std::span<Envelope> questions, const std::shared_ptr<PassNews>& news) override;

 private:
  struct Asked;
  SimDevice& device_;
  SimHost& host_;
  const std::shared_ptr<FakeExperts> experts_;
};

class FakeFactory final : public ComputeFactory {
 public:
  explicit FakeFactory(SimHost& host) : host_(host) {}
  Result<std::unique_ptr<ShardCompute>> make_shard(ShardSpec spec) override;
  Result<MadePass> make_pass(const PassSpec& spec) override;

 private:
  void count();

  std::shared_ptr<FakeExperts> experts_on(const Device& device);

  SimHost& host_;
  std::map<std::uint32_t, std::weak_ptr<FakeExperts>> experts_;  // by device
  std::shared_ptr<ExpertCounter> counter_;                       // of the node, once it has a shard
};

}  // namespace troupe::sim
