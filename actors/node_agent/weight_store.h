#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "model/checkpoint.h"
#include "model/expert_set.h"
#include "model/weights.h"
#include "runtime/placement.h"

namespace troupe {

/// What a node must hold under one version of the placement.
struct WeightPart {
  Numerics numerics = Numerics::kReference;
  std::vector<ShardPlacement> shards;  ///< of this node
  std::vector<LayerExperts> experts;   ///< slots of this node's devices only
};

/// What it holds then.
struct LoadedPart {
  std::vector<std::shared_ptr<const ShardWeights>> shards;  ///< as WeightPart::shards
  std::map<std::uint32_t, ExpertSet::Map> experts;          ///< by device
};

/// The weights of one node, kept in memory while the placement asks for them: what a new version
/// gives the node again is not read again, and what it does not give any more is let go.
class WeightStore {
 public:
  /// Bytes of this load that are done and in all; both count packed weights, held ones included.
  using OnProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

  /// Reads what is missing with `threads` threads. Blocking; one call at a time. kCancelled when
  /// `cancelled` becomes true; otherwise an error names the file and the tensor.
  Result<LoadedPart> load(const Checkpoint& checkpoint, const WeightPart& part, int threads,
                          const std::atomic<bool>& cancelled, const OnProgress& on_progress);

  std::uint64_t held_bytes() const { return held_bytes_.load(); }

 private:
  struct ShardKey {
    Numerics numerics;
    std::int32_t first, last;
    auto operator<=>(const ShardKey&) const = default;
  };
  struct HeldExpertKey {
    Numerics numerics;
    ExpertKey expert;
    auto operator<=>(const HeldExpertKey&) const = default;
  };
  std::string checkpoint_hash_;
  std::map<ShardKey, std::shared_ptr<const ShardWeights>> shards_;
  std::map<HeldExpertKey, std::shared_ptr<const ExpertWeights>> experts_;
  std::atomic<std::uint64_t> held_bytes_{0};
};

}  // namespace troupe
