#pragma once

#include "actors/worker/weight_source.h"
#include "tests/sim/sim_host.h"

namespace troupe::sim {

/// What is wrong with a machine's disk; it outlives the processes there.
struct DiskFaults {
  bool slow = false;
  int failing = 0;      ///< faults that make reads fail for a reason that passes
  int gone = 0;         ///< faults that make them fail for one that does not
  int hanging = 0;      ///< faults that let no read end
  bool denied = false;  ///< no read succeeds for the rest of the history
};

/// Weights without content, read piece by piece at the pace of a disk.
class SimDisk final : public WeightSource {
 public:
  SimDisk(SimHost& host, const DiskFaults& faults) : host_(host), faults_(faults) {}

  void listen(const Ref<NodeAgentInbox>& agent) override { agent_ = agent; }
  void inspect(const std::string& folder) override;
  void read(ReadOrder order) override;
  void build(std::shared_ptr<Preparation> preparation) override;
  void prove(std::vector<std::string> tensors) override;
  void prove_copies() override;
  ProofReport proofs() const override { return {}; }
  void cancel() override { begin_job(); }
  void free(Garbage garbage) override;

 private:
  std::uint64_t begin_job();
  void next(std::uint64_t job, const std::shared_ptr<const ReadOrder>& order, std::size_t piece);
  void end(const ReadOrder& order, Status status);

  SimHost& host_;
  const DiskFaults& faults_;
  Ref<NodeAgentInbox> agent_;
  std::uint64_t job_ = 0;  ///< what belongs to an earlier one is superseded
  std::shared_ptr<Preparation> building_;
};

}  // namespace troupe::sim
