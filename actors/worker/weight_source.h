#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "actors/node_agent/messages.h"
#include "actors/worker/model_sizes.h"

namespace troupe {

/// What is to be read for a version, in this order.
struct ReadOrder {
  PlacementVersion version;
  bool tier = false;  ///< for the second tier: to be locked into memory
  Numerics numerics = Numerics::kReference;
  std::string model_path;
  std::string checkpoint_hash;
  std::vector<ExpertKey> experts;
  std::vector<LayerRange> shards;
  /// The devices of this node that compute with them, by index: of `experts`, then of `shards`. Of
  /// an expert that several have, one. What is past its end is for none.
  std::vector<std::uint32_t> devices;
  /// Of each, the same elsewhere on this node, to be copied; null: it is read. What is past their
  /// ends is read.
  std::vector<std::shared_ptr<const ExpertWeights>> expert_sources;
  std::vector<std::shared_ptr<const ShardWeights>> shard_sources;

  bool empty() const { return experts.empty() && shards.empty(); }
  /// Whether nothing of it is to be read.
  bool copies() const {
    const auto null = [](const auto& source) { return source == nullptr; };
    return expert_sources.size() == experts.size() && shard_sources.size() == shards.size() &&
           std::ranges::none_of(expert_sources, null) && std::ranges::none_of(shard_sources, null);
  }
};

/// Pieces that nobody uses any more, to be freed off the actor's thread.
using Garbage = std::vector<PieceTensors>;

/// Where weights come from, and what else takes long: what it finds comes back to the NodeAgent as
/// messages. In a process it is a FileSource, with threads; the simulation has a disk of its own.
/// No call blocks. News of an earlier call come before those of a later one, and what a superseded
/// build had claimed is given back before them.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// Once, before anything else: who is told.
  virtual void listen(const Ref<NodeAgentInbox>& agent) = 0;
  /// CheckpointInspected follows.
  virtual void inspect(const std::string& folder) = 0;
  /// Supersedes the order and the build before. PieceReads follow, then PartRead.
  virtual void read(ReadOrder order) = 0;
  /// Supersedes as well. PartBuilt follows.
  virtual void build(std::shared_ptr<Preparation> preparation) = 0;
  /// The answer to a Prove: ProofsRead follows, in portions.
  virtual void prove(std::vector<std::string> tensors) = 0;
  /// All pieces that were read and are still held are looked at again, at once: a CopyDiffers for
  /// each that is not what it was, then CopiesProven. It looks at them anyway, but slowly.
  virtual void prove_copies() = 0;
  /// Of the pieces that are held.
  virtual ProofReport proofs() const = 0;
  /// What was ordered is not wanted any more.
  virtual void cancel() = 0;
  /// What was computed with a piece is kept beyond it: so it is looked at a last time, and a
  /// CopyDiffers may follow.
  virtual void free(Garbage garbage) = 0;
};

}  // namespace troupe
