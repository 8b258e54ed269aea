#include "actors/worker/weight_store.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "model/weights.h"
#include "runtime/limits.h"

namespace troupe {

WeightStore::ShardKey WeightStore::key_of(const WeightPart& part,
                                          const ShardPlacement& shard) const {
  return key_of(part.numerics, layers_of(shard, part.tensor_ranks), place_of(shard.device.index));
}

WeightStore::Version WeightStore::version_of(const WeightPart& part) const {
  Version version{part, {}, {}, {}, {}, {}};
  for (const auto& shard : part.shards)
    version.shards.try_emplace(key_of(part, shard), shard.device.index);
  for (const auto& layer : part.experts)
    for (const auto& slot : layer.slots) {
      const HeldExpertKey key{
          part.numerics, {layer.layer, slot.expert}, place_of(slot.device.index)};
      if (version.served.try_emplace(key, slot.device.index).second) version.experts.push_back(key);
    }
  std::set<HeldExpertKey> in_tier;
  for (const auto& layer : part.tier)
    for (const auto& slot : layer.slots) {
      const HeldExpertKey key{part.numerics, {layer.layer, slot.expert}, kHost};
      if (in_tier.insert(key).second) version.tier.push_back(key);
    }
  version.kept = {version.experts.begin(), version.experts.end()};
  version.kept.merge(in_tier);
  return version;
}

std::uint64_t WeightStore::size_of(const ShardKey& key) const {
  return checkpoint_.sizes->shard_bytes(key.numerics, key.layers());
}
std::uint64_t WeightStore::size_of(const HeldExpertKey& key) const {
  return checkpoint_.sizes->expert_bytes(key.numerics);
}

bool WeightStore::wanted(const ShardKey& key) const {
  return std::any_of(versions_.begin(), versions_.end(),
                     [&](const auto& entry) { return entry.second.serves(key); });
}
bool WeightStore::wanted(const HeldExpertKey& key) const {
  return std::any_of(versions_.begin(), versions_.end(),
                     [&](const auto& entry) { return entry.second.kept.contains(key); });
}

template <class Key>
bool WeightStore::wanted_anywhere(Key key) const {
  if (key.place = kHost; wanted(key)) return true;
  return std::ranges::any_of(options_.own_memory, [&](std::uint32_t device) {
    key.place = device;
    return wanted(key);
  });
}

// --- What is held -------------------------------------------------------------------------------

template <class Held, class Condition>
void WeightStore::drop_if(Held& held, const Condition& condition) {
  std::erase_if(held, [&](auto& entry) {
    if (!condition(entry)) return false;
    held_bytes_ -= size_of(entry.first);
    garbage_.push_back(std::move(entry.second.tensors));
    return true;
  });
}

void WeightStore::drop_all() {
  const auto always = [](const auto&) { return true; };
  drop_if(shards_, always);
  drop_if(experts_, always);
}

void WeightStore::drop_unwanted() {
  const auto unwanted = [this](const auto& entry) { return !wanted(entry.first); };
  drop_if(shards_, unwanted);
  drop_if(experts_, unwanted);
}

/// What a load that is given up had read: a device needs its memory at once; the host's goes with
/// the version in force, or now, if none serves. What is to be copied from there stays.
void WeightStore::drop_superseded() {
  const bool serves = versions_.size() > 1;
  const auto superseded = [&](const auto& entry) {
    if (entry.first.place != kHost) return !wanted(entry.first);
    return !serves && !wanted_anywhere(entry.first);
  };
  drop_if(shards_, superseded);
  drop_if(experts_, superseded);
}

void WeightStore::drop(const PieceTensors& piece) {
  const auto same = [&](const auto& entry) { return entry.second.tensors == piece; };
  drop_if(shards_, same);
  drop_if(experts_, same);
}

void WeightStore::drop_of_device(std::uint32_t device) {
  failed_.insert(device);
  const auto there = [&](const auto& entry) { return entry.first.place == device; };
  drop_if(shards_, there);
  drop_if(experts_, there);
}

void WeightStore::discard(const std::set<std::string>& tensors,
                          std::optional<PlacementVersion> active) {
  const auto discard_from = [&](auto& held) {
    for (auto& [key, piece] : held)
      piece.doubted |= piece.tensors && std::any_of(piece.tensors->begin(), piece.tensors->end(),
                                                    [&](const HeldTensor& tensor) {
                                                      return tensors.contains(tensor.proof.tensor);
                                                    });
  };
  discard_from(shards_);
  discard_from(experts_);
  drop_doubted(active);
}

void WeightStore::drop_doubted(std::optional<PlacementVersion> active) {
  const auto found = active ? versions_.find(*active) : versions_.end();
  const Version* serving = found == versions_.end() ? nullptr : &found->second;
  const auto unused = [&](const auto& entry) {
    return entry.second.doubted && !(serving && serving->serves(entry.first));
  };
  drop_if(shards_, unused);
  drop_if(experts_, unused);
}

void WeightStore::use(const InspectedCheckpoint& checkpoint) {
  if (checkpoint_.hash == checkpoint.hash && checkpoint_.folder == checkpoint.folder) return;
  drop_all();
  versions_.clear();
  checkpoint_ = checkpoint;
}

void WeightStore::retire(PlacementVersion version) {
  if (!versions_.contains(version)) return;  // of an earlier membership
  std::erase_if(versions_, [&](const auto& entry) { return entry.first < version; });
  drop_unwanted();
  drop_doubted(version);
}

void WeightStore::give_up_after(PlacementVersion version) {
  if (!versions_.contains(version)) return;
  std::erase_if(versions_, [&](const auto& entry) { return entry.first > version; });
}

void WeightStore::let_go() {
  versions_.clear();
  drop_all();
  let_go_ = true;
}

void WeightStore::forget_versions() {
  versions_.clear();
  let_go_ = false;
  tell_again();
}

void WeightStore::tell_again() {
  for (auto& [key, piece] : shards_) piece.told = false;
  for (auto& [key, piece] : experts_) piece.told = false;
}

std::vector<TensorProofs> WeightStore::take_untold() {
  std::vector<TensorProofs> portions;
  const auto tell = [&](auto& held) {
    for (auto& [key, piece] : held) {
      if (std::exchange(piece.told, true) || !piece.tensors) continue;
      for (const HeldTensor& tensor : *piece.tensors) {
        if (portions.empty() || portions.back().tensors.size() >= limits::kProofsPerMessage)
          portions.emplace_back();
        TensorProof& told = portions.back().tensors.emplace_back(tensor.proof);
        if (tensor.second_form) told.packed.reset();
      }
    }
  };
  tell(shards_);
  tell(experts_);
  return portions;
}

HeldInventory WeightStore::held() const {
  HeldInventory held;
  held.bytes = held_bytes_;
  for (const auto& [key, weights] : shards_)
    if (!std::ranges::count(held.shards, key.layers())) held.shards.push_back(key.layers());
  std::map<std::int32_t, std::set<std::int32_t>> experts;
  for (const auto& [key, weights] : experts_) experts[key.expert.layer].insert(key.expert.expert);
  for (const auto& [layer, ids] : experts)
    held.experts.push_back({layer, {ids.begin(), ids.end()}});
  return held;
}

// --- Loading ------------------------------------------------------------------------------------

void WeightStore::begin(PlacementVersion version, const WeightPart& part,
                        std::optional<PlacementVersion> active) {
  assert(checkpoint_.sizes);
  std::erase_if(versions_, [&](const auto& entry) { return !active || entry.first > *active; });
  versions_[version] = version_of(part);
  drop_superseded();
  const Version& content = versions_.at(version);
  progress_ = {version, 0, 0};
  for (const auto& [key, device] : content.shards) {
    progress_.bytes_total += size_of(key);
    if (shards_.contains(key)) progress_.bytes_done += size_of(key);
  }
  for (const auto& key : content.experts) {
    progress_.bytes_total += size_of(key);
    if (experts_.contains(key)) progress_.bytes_done += size_of(key);
  }
}

ReadOrder WeightStore::order_of(PlacementVersion version, const Version& content) const {
  ReadOrder order;
  order.version = version;
  order.numerics = content.part.numerics;
  order.checkpoint_hash = checkpoint_.hash;
  return order;
}

template <class Held>
auto WeightStore::elsewhere(const Held& held, typename Held::key_type key) {
  const auto wanted = key.place;
  key.place = kHost;  // the first
  for (auto it = held.lower_bound(key); wanted != kHost && it != held.end(); ++it) {
    key.place = it->first.place;
    if (it->first != key) break;
    if (!it->second.doubted) return it->second.weights;
  }
  return decltype(held.begin()->second.weights)();
}

ReadOrder WeightStore::missing(PlacementVersion version) const {
  const Version& content = versions_.at(version);
  ReadOrder order = order_of(version, content);
  std::set<ExpertKey> read;
  for (const auto& key : content.experts) {
    if (experts_.contains(key)) continue;
    auto source = elsewhere(experts_, key);
    if (!source && !read.insert(key.expert).second) continue;
    order.experts.push_back(key.expert);
    order.devices.push_back(content.served.at(key));
    order.expert_sources.push_back(std::move(source));
  }
  for (const auto& [key, device] : content.shards) {
    if (shards_.contains(key)) continue;
    auto source = elsewhere(shards_, key);
    if (!source && std::ranges::find(order.shards, key.layers()) != order.shards.end()) continue;
    order.shards.push_back(key.layers());
    order.devices.push_back(device);
    order.shard_sources.push_back(std::move(source));
  }
  return order;
}

bool WeightStore::complete(PlacementVersion version) const {
  const auto found = versions_.find(version);
  if (found == versions_.end()) return false;
  const Version& content = found->second;
  const auto has_expert = [&](const auto& key) { return experts_.contains(key); };
  const auto has_shard = [&](const auto& shard) { return shards_.contains(shard.first); };
  return std::all_of(content.experts.begin(), content.experts.end(), has_expert) &&
         std::all_of(content.shards.begin(), content.shards.end(), has_shard);
}

template <class Key, class Held>
bool WeightStore::keep(const Key& key, Held& held, typename Held::mapped_type piece) {
  // Between two memberships nobody has said yet what is wanted: everything stays.
  const bool unwanted =
      let_go_ || failed_.contains(key.place) || (!versions_.empty() && !wanted(key));
  if (unwanted || !held.try_emplace(key, piece).second) {
    garbage_.push_back(std::move(piece.tensors));
    return false;
  }
  held_bytes_ += size_of(key);
  return true;
}

bool WeightStore::take(PieceRead piece) {
  const Place place = piece.place ? Place{*piece.place} : kHost;
  const auto newest = versions_.find(progress_.version);
  bool counts = false;
  std::uint64_t bytes = 0;
  if (piece.is_expert) {
    const HeldExpertKey key{piece.numerics, piece.expert, place};
    bytes = size_of(key);
    counts = keep(key, experts_, {std::move(piece.expert_weights), piece.tensors}) &&
             newest != versions_.end() && newest->second.served.contains(key);
  } else {
    const ShardKey key = key_of(piece.numerics, piece.layers, place);
    bytes = size_of(key);
    counts = keep(key, shards_, {std::move(piece.shard_weights), piece.tensors}) &&
             newest != versions_.end() && newest->second.shards.contains(key);
  }
  if (counts) progress_.bytes_done += bytes;
  return counts;
}

LoadedPart WeightStore::part(PlacementVersion version) const {
  assert(complete(version));
  const WeightPart& part = versions_.at(version).part;
  LoadedPart loaded;
  for (const auto& shard : part.shards)
    loaded.shards.push_back(shards_.at(key_of(part, shard)).weights);
  for (const auto& layer : part.experts)
    for (const auto& slot : layer.slots)
      loaded.experts[slot.device.index][{layer.layer, slot.expert}] =
          experts_.at({part.numerics, {layer.layer, slot.expert}, place_of(slot.device.index)})
              .weights;
  return loaded;
}

// --- The second tier ----------------------------------------------------------------------------

ReadOrder WeightStore::missing_tier(PlacementVersion version) const {
  const auto found = versions_.find(version);
  if (found == versions_.end()) return {};
  ReadOrder order = order_of(version, found->second);
  order.tier = true;
  const auto served = [&](const HeldExpertKey& key) {
    return std::any_of(versions_.begin(), versions_.end(),
                       [&](const auto& entry) { return entry.second.served.contains(key); });
  };
  std::uint64_t used = 0;
  for (const auto& [key, weights] : experts_)
    if (key.place == kHost && !served(key)) used += size_of(key);
  for (const auto& key : found->second.tier) {
    if (experts_.contains(key)) continue;
    if (used + size_of(key) > options_.tier_memory) break;
    used += size_of(key);
    order.experts.push_back(key.expert);
  }
  return order;
}

std::string WeightStore::violation() const {
  std::uint64_t bytes = 0;
  for (const auto& [key, weights] : shards_) bytes += size_of(key);
  for (const auto& [key, weights] : experts_) bytes += size_of(key);
  if (bytes != held_bytes_) return "held bytes are not the sum of what is held";
  if (progress_.bytes_done > progress_.bytes_total) return "more of a load is done than it has";
  return {};
}

}  // namespace troupe
