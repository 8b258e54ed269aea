#pragma once

#include <memory>
#include <string>
#include <vector>

#include "actors/worker/weight_source.h"
#include "tests/sim/sim_host.h"
#include "tests/sim/sim_piece.h"

namespace troupe::sim {

/// How many faults of each kind a machine's disk has; they outlive the processes there.
struct DiskFaults {
  int slow = 0;
  int failing = 0;      ///< reads fail for a reason that passes
  int gone = 0;         ///< they fail for one that does not
  int hanging = 0;      ///< no read ends
  int denied = 0;       ///< no read succeeds
  int revised = 0;      ///< its files are of another revision
  int odd_tensors = 0;  ///< some of its tensors are
};

/// Weights of a number each, read piece by piece at the pace of a disk, and looked at in memory.
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

  /// A bit flips in one of the pieces that are held; null: none is.
  std::weak_ptr<const SimPiece> flip();

 private:
  std::uint64_t begin_job();
  void next(std::uint64_t job, const std::shared_ptr<const ReadOrder>& order, std::size_t piece);
  void end(const ReadOrder& order, Status status);
  /// Why no read succeeds now.
  Status readable() const;
  std::uint64_t revision_of(const std::string& tensor) const;
  void look(const std::weak_ptr<SimPiece>& piece);

  SimHost& host_;
  const DiskFaults& faults_;
  Ref<NodeAgentInbox> agent_;
  std::uint64_t job_ = 0;  ///< what belongs to an earlier one is superseded
  std::shared_ptr<Preparation> building_;
  std::vector<std::weak_ptr<SimPiece>> pieces_;  ///< that were read here
};

}  // namespace troupe::sim
