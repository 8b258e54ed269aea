#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "model/checkpoint.h"
#include "model/expert_set.h"
#include "model/weights.h"
#include "runtime/placement.h"
#include "transport/message.h"

namespace troupe {

/// What a node must hold under one version of the placement.
struct WeightPart {
  Numerics numerics = Numerics::kReference;
  std::vector<ShardPlacement> shards;  ///< of this node
  /// Slots of this node's devices only. Read in this order; a layer may come twice.
  std::vector<LayerExperts> experts;
  /// Second tier: experts to keep in host memory without serving them, read in this order.
  std::vector<LayerExperts> tier;
};

/// What it holds then.
struct LoadedPart {
  std::vector<std::shared_ptr<const ShardWeights>> shards;  ///< as WeightPart::shards
  std::map<std::uint32_t, ExpertSet::Map> experts;          ///< by device
};

/// What is in memory.
struct HeldWeights {
  std::vector<LayerRange> shards;
  std::vector<HeldExperts> experts;  ///< ordered by layer
};

/// The weights of one node, kept in memory while a version of the placement asks for them: what a
/// new version gives the node again is not read again. Nothing that a version still uses goes
/// before it is retired. Thread-safe; one load() or load_tier() at a time.
class WeightStore {
 public:
  /// `tier_memory`: bytes that experts may take which no version serves here; 0: no second tier.
  explicit WeightStore(std::uint64_t tier_memory = 0) : tier_memory_(tier_memory) {}

  /// Bytes of this load that are done and in all; both count packed weights, held ones included.
  using OnProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;
  /// How a load goes on.
  struct Progress {
    int threads = 1;
    const std::atomic<bool>& cancelled;
    OnProgress on_progress{};
  };

  /// Whether something of that part has to be read.
  bool lacks(const WeightPart& part) const;

  /// Reads what is missing of a version's part (without its tier) with several threads, the experts
  /// first. Versions after `active`, the one that serves, are superseded; with none that serves,
  /// what the part does not ask for goes first, since its memory may be needed. kCancelled when
  /// `cancelled` becomes true: what has been read is kept. Otherwise an error names the file and
  /// the tensor.
  Result<LoadedPart> load(const Checkpoint& checkpoint, PlacementVersion version,
                          const WeightPart& part, std::optional<PlacementVersion> active,
                          const Progress& progress);

  /// Reads what is missing of the loaded version's second tier, as far as `tier_memory` goes, and
  /// locks it into memory if the system lets us.
  Status load_tier(const Checkpoint& checkpoint, PlacementVersion version,
                   const Progress& progress);

  /// Nobody uses what is older than that version: what no version asks for any more goes.
  void retire(PlacementVersion version);
  /// The versions are of an earlier membership; everything stays until it is known what for.
  void forget_versions();

  HeldWeights held() const;
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
  using Shards = std::map<ShardKey, std::shared_ptr<const ShardWeights>>;
  using Experts = std::map<HeldExpertKey, std::shared_ptr<const ExpertWeights>>;
  /// What was let go, to be freed without the lock.
  struct Dropped {
    Shards shards;
    Experts experts;
  };
  /// What a load has to read, and what it found.
  struct Missing {
    std::vector<ShardKey> shards;
    std::vector<HeldExpertKey> experts;
    std::uint64_t done = 0, total = 0;  // bytes
  };

  static std::set<ShardKey> shards_of(const WeightPart& part);
  static std::vector<HeldExpertKey> experts_of(Numerics numerics,
                                               const std::vector<LayerExperts>& layers);
  std::uint64_t shard_size(const ShardKey& key) const;
  std::uint64_t expert_size(Numerics numerics) const;
  void take_checkpoint(const Checkpoint& checkpoint, Dropped& dropped);
  Dropped drop_unwanted();
  Missing missing_of(const WeightPart& part) const;
  std::vector<HeldExpertKey> missing_tier(const WeightPart& part) const;
  Status read_expert(const Checkpoint& checkpoint, const HeldExpertKey& key);
  Status read_shard(const Checkpoint& checkpoint, const ShardKey& key);

  const std::uint64_t tier_memory_;

  mutable std::mutex mutex_;  // guards what follows
  std::string checkpoint_hash_;
  ModelConfig model_;
  std::map<PlacementVersion, WeightPart> parts_;
  Shards shards_;
  Experts experts_;
  bool lock_failed_ = false;  // said once
  std::atomic<std::uint64_t> held_bytes_{0};
};

}  // namespace troupe
