#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/node_agent/node_progress.h"
#include "actors/worker/weight_source.h"
#include "runtime/placement.h"

namespace troupe {

/// What a node must hold under one version of the placement.
struct WeightPart {
  Numerics numerics = Numerics::kReference;
  std::vector<ShardPlacement> shards;  ///< of this node
  /// Slots of this node's devices only. Read in this order; a layer may come twice.
  std::vector<LayerExperts> experts;
  /// Second tier: experts to keep in host memory without serving them, read in this order.
  std::vector<LayerExperts> tier;
  std::uint32_t tensor_ranks = 1;
};

/// What it holds then.
struct LoadedPart {
  std::vector<std::shared_ptr<const ShardWeights>> shards;  ///< as WeightPart::shards
  std::map<std::uint32_t, ExpertSet::Map> experts;          ///< by device
};

/// The weights of one node, kept in memory while a version of the placement asks for them: what a
/// new version gives the node again is not read again. Nothing that a version still uses goes
/// before it is retired. It decides what to read and what to let go; a WeightSource reads.
///
///     begin ─► missing ─► ReadOrder ─► source ─► PieceRead ─► take ─► part
///     retire ─► garbage ─► source                missing_tier ─► ReadOrder
class WeightStore {
 public:
  struct Options {
    /// Bytes of the host's that experts may take which no version serves here; 0: no second tier.
    std::uint64_t tier_memory = 0;
    std::set<std::uint32_t> own_memory = {};  ///< devices that compute with memory of their own
  };
  explicit WeightStore(Options options) : options_(std::move(options)) {}

  /// What is read from now on is of that checkpoint. Weights of another one go: of another folder,
  /// too, since the hash does not cover their bytes.
  void use(const InspectedCheckpoint& checkpoint);
  /// Whether it can tell sizes: a checkpoint is in use.
  const std::shared_ptr<const ModelSizes>& sizes() const { return checkpoint_.sizes; }

  /// A version is to be loaded. Versions after `active`, the one that serves, are superseded; what
  /// was read for them stays. With none that serves, what the part does not ask for goes first,
  /// since its memory may be needed.
  void begin(PlacementVersion version, const WeightPart& part,
             std::optional<PlacementVersion> active);
  /// What has to be read of that version's part, without its tier: the experts first. What several
  /// devices are to have is read for one of them; asked again then, it is copied for the others.
  ReadOrder missing(PlacementVersion version) const;
  /// Of its tier's experts that are not held, as many as `tier_memory` has room for.
  ReadOrder missing_tier(PlacementVersion version) const;
  /// Keeps a piece. What no version asks for (any more), or is held already, becomes garbage.
  /// True: it counts for the load that was begun last.
  bool take(PieceRead piece);
  /// Bytes of the load that was begun last, done and in all; held ones included.
  const LoadProgress& progress() const { return progress_; }
  /// Everything of that version is held.
  bool complete(PlacementVersion version) const;
  LoadedPart part(PlacementVersion version) const;

  /// Lets a piece go whatever asks for it, if it is held.
  void drop(const PieceTensors& piece);
  /// A device has failed: what is in its memory is of no use to anybody.
  void drop_of_device(std::uint32_t device);
  /// Pieces with one of these tensors may be wrong. What `active`, the version that serves,
  /// serves goes with the membership, the others at once.
  void discard(const std::set<std::string>& tensors, std::optional<PlacementVersion> active);
  /// Lets go of doubted ones that `active` does not serve.
  void drop_doubted(std::optional<PlacementVersion> active);
  /// What the tensors of pieces were when they were read: of those that were not told yet in this
  /// membership, in portions.
  std::vector<TensorProofs> take_untold();

  /// Nobody uses what is older than that version: what no version asks for any more goes.
  void retire(PlacementVersion version);
  /// Versions after that one will not serve. retire() follows.
  void give_up_after(PlacementVersion version);
  /// The versions are of an earlier membership; everything stays until it is known what for, and
  /// is to be told again.
  void forget_versions();
  /// Another head has not heard of anything.
  void tell_again();
  /// Everything goes, and what is still being read goes when it comes, until forget_versions().
  void let_go();

  HeldInventory held() const;
  std::uint64_t held_bytes() const { return held_bytes_; }
  /// What was let go since the last call.
  Garbage take_garbage() { return std::exchange(garbage_, {}); }
  std::string violation() const;

 private:
  /// The device in whose memory it is, or the host's, which several devices may share.
  using Place = std::int64_t;
  static constexpr Place kHost = -1;
  struct ShardKey {
    Numerics numerics;
    std::int32_t first, last;
    TensorRank rank;
    Place place = kHost;
    LayerRange layers() const { return {first, last, rank}; }
    auto operator<=>(const ShardKey&) const = default;
  };
  struct HeldExpertKey {
    Numerics numerics;
    ExpertKey expert;
    Place place = kHost;
    auto operator<=>(const HeldExpertKey&) const = default;
  };
  template <class Weights>
  struct Piece {
    std::shared_ptr<const Weights> weights;
    PieceTensors tensors;
    bool told = false;     ///< its proofs, in this membership
    bool doubted = false;  ///< not to be used in another one
  };
  /// A part, and what it asks for: each with the device, or one of those, that compute with it.
  struct Version {
    WeightPart part;
    std::map<ShardKey, std::uint32_t> shards;
    std::vector<HeldExpertKey> experts;             ///< in the order of reading, each once
    std::vector<HeldExpertKey> tier;                ///< the same
    std::map<HeldExpertKey, std::uint32_t> served;  ///< as `experts`
    std::set<HeldExpertKey> kept;                   ///< `experts` and `tier`
    bool serves(const ShardKey& key) const { return shards.contains(key); }
    bool serves(const HeldExpertKey& key) const { return served.contains(key); }
  };

  static ShardKey key_of(Numerics numerics, const LayerRange& layers, Place place) {
    return {numerics, layers.first, layers.last, layers.rank, place};
  }
  Place place_of(std::uint32_t device) const {
    return options_.own_memory.contains(device) ? Place{device} : kHost;
  }
  ShardKey key_of(const WeightPart& part, const ShardPlacement& shard) const;
  Version version_of(const WeightPart& part) const;
  std::uint64_t size_of(const ShardKey& key) const;
  std::uint64_t size_of(const HeldExpertKey& key) const;
  bool wanted(const ShardKey& key) const;
  bool wanted(const HeldExpertKey& key) const;
  template <class Key>
  bool wanted_anywhere(Key key) const;
  /// The same weights in another place.
  template <class Held>
  static auto elsewhere(const Held& held, typename Held::key_type key);
  template <class Key, class Held>
  bool keep(const Key& key, Held& held, typename Held::mapped_type piece);
  template <class Held, class Condition>
  void drop_if(Held& held, const Condition& condition);
  void drop_all();
  void drop_unwanted();
  void drop_superseded();
  ReadOrder order_of(PlacementVersion version, const Version& content) const;

  const Options options_;
  InspectedCheckpoint checkpoint_;
  std::map<PlacementVersion, Version> versions_;
  std::map<ShardKey, Piece<ShardWeights>> shards_;
  std::map<HeldExpertKey, Piece<ExpertWeights>> experts_;
  bool let_go_ = false;     ///< nobody wants anything
  std::set<Place> failed_;  ///< devices whose memory nobody uses any more
  std::uint64_t held_bytes_ = 0;
  LoadProgress progress_;
  Garbage garbage_;
};

}  // namespace troupe
