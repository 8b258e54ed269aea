#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "actors/base/post.h"
#include "actors/worker/copy_watch.h"
#include "actors/worker/loader.h"
#include "actors/worker/proof_reader.h"
#include "actors/worker/weight_source.h"
#include "kernels/accelerator.h"
#include "runtime/numa.h"

namespace troupe {

/// Weights from a checkpoint's files, read and packed by several threads at a time. A lease must
/// depend on none of it: one thread reads and builds, one reads proofs, one frees, one looks at
/// what is in memory. Storage that hangs costs a thread, which outlives this if it must.
class FileSource final : public WeightSource {
 public:
  /// Where what a device computes with lies.
  struct Home {
    std::uint32_t index = 0;  ///< the device's
    int numa_node = kAnyNumaNode;
    std::shared_ptr<kernels::Accelerator> device;  ///< whose memory it goes to; null: the host's
    /// As PieceRead tells it.
    std::optional<std::uint32_t> place() const {
      return device ? std::optional(index) : std::nullopt;
    }
  };
  /// `homes`: of each device. `post` must outlive it.
  FileSource(Post& post, int threads, std::vector<Home> homes);
  ~FileSource() override;

  void listen(const Ref<NodeAgentInbox>& agent) override;
  void inspect(const std::string& folder) override;
  void read(ReadOrder order) override;
  void build(std::shared_ptr<Preparation> preparation) override;
  void prove(std::vector<std::string> tensors) override;
  void prove_copies() override { watch_->prove_all(); }
  ProofReport proofs() const override { return watch_->report(); }
  void cancel() override;
  void free(Garbage garbage) override;

 private:
  struct Core;

  const std::shared_ptr<Core> core_;  ///< what a job that hangs still holds
  const std::shared_ptr<CopyWatch> watch_;
  std::mutex mutex_;
  Garbage garbage_;  // guarded by mutex_
  ProofReader prover_;
  Loader loader_, cleaner_;  // last: their threads use what is above
};

}  // namespace troupe
